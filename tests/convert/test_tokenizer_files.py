"""Ids of an exported tokenizer in transformers equal ours: of texts, of pairs, and around masks."""

import json
import random

import pytest
import transformers
from kits.runs import SIZES
from kits.texts import NASTY, PROSE, nasty, odd_lines, published, real_lines

from bert_jax.convert import tokenizer_files
from bert_jax.tokenizers import tokenizer as tokenizers

PUBLISHED = {"uncased": "bert_base_uncased_vocab.txt", "cased": "bert_base_cased_vocab.txt"}
PUBLISHED |= {"chinese": "bert_base_chinese_vocab.txt", "albert": "albert_spiece_30k.model"}
KINDS = ("wordpiece", "unigram", "bpe", "byte_bpe")
MASKED = ("the {} fox", "un{}able. {}", "It is {}.", "{} is here", "the {} {} fox", "fox {}, lazy")
MASKED += ("the {}... and", "{}() {}--x", "({}...)")

# What names special pieces is theirs to read, and only ours to leave alone.
ORDINARY = [text for text in NASTY if "[MASK]" not in text]


def exported(place, tokenizer):
    """The tokenizer as transformers opens it."""
    place.mkdir(exist_ok=True)
    tokenizer_files.write(place, tokenizer, positions=512)
    (place / "config.json").write_text(json.dumps({"model_type": "bert"}))
    return transformers.AutoTokenizer.from_pretrained(place)


def small(kind: str) -> tokenizers.Tokenizer:
    return tokenizers.train(kind, PROSE, SIZES[kind], True)


def differing(tokenizer, theirs, texts: list[str]) -> list[str]:
    found = theirs(texts, add_special_tokens=False, verbose=False)["input_ids"]
    pairs = zip(texts, tokenizer.encode(texts), found, strict=True)
    return [text for text, ours, other in pairs if ours != other]


@pytest.mark.parametrize("kind", KINDS)
def test_what_transformers_opens(tmp_path, kind):
    tokenizer = small(kind)
    theirs = exported(tmp_path / "out", tokenizer)
    assert theirs.model_max_length == 512 and len(theirs) == tokenizer.size
    assert theirs.convert_ids_to_tokens(range(tokenizer.size)) == tokenizer.pieces
    special = {name: getattr(theirs, f"{name}_token_id") for name in tokenizer.special}
    assert special == tokenizer.special
    a, b = tokenizer.encode(["the fox", "a dog"])
    cls, sep = tokenizer.cls, tokenizer.sep
    pair = theirs("the fox", "a dog")
    assert pair["input_ids"] == [cls, *a, sep, *b, sep]
    assert pair["token_type_ids"] == [0] * (len(a) + 2) + [1] * (len(b) + 1)
    assert theirs("the fox")["input_ids"] == [cls, *a, sep]
    assert theirs.decode(a).strip() == "the fox"
    files = {"tokenizer.json", "tokenizer_config.json", "config.json"}
    files |= {"vocab.txt"} if kind == "wordpiece" else set()
    assert {path.name for path in (tmp_path / "out").iterdir()} == files


@pytest.mark.parametrize("kind", KINDS)
def test_masks_are_read_as_ours_are(tmp_path, kind):
    tokenizer = small(kind)
    theirs = exported(tmp_path / "out", tokenizer)
    for text in MASKED:
        text = text.format(*["[MASK]"] * 2)
        found = theirs(text, add_special_tokens=False)["input_ids"]
        assert found == tokenizer.encode_with_masks(text), text


@pytest.mark.parametrize("kind", KINDS)
def test_ids_of_small_vocabularies(tmp_path, kind):
    tokenizer = small(kind)
    theirs = exported(tmp_path / "out", tokenizer)
    assert not differing(tokenizer, theirs, PROSE + ORDINARY)


@pytest.mark.parametrize("name", PUBLISHED)
def test_ids_of_published_vocabularies(tmp_path, name):
    tokenizer = tokenizers.given(published(PUBLISHED[name]), name != "cased")
    theirs = exported(tmp_path / "out", tokenizer)
    assert not differing(tokenizer, theirs, odd_lines(400) + ORDINARY)


def test_texts_for_normalizers_to_stumble_over(tmp_path):
    """The steps put around SentencePiece's table err only where a mark follows a ligature or what is removed."""
    draw = random.Random(1)
    texts = [nasty(draw) for _ in range(2000)]
    for kind, most in {"wordpiece": 0, "byte_bpe": 0, "unigram": 60, "bpe": 60}.items():
        tokenizer = small(kind)
        theirs = exported(tmp_path / kind, tokenizer)
        assert len(differing(tokenizer, theirs, texts)) <= most, kind


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
@pytest.mark.parametrize(
    "settings",
    [
        {"byte_fallback": True},
        {"add_dummy_prefix": False},
        {"remove_extra_whitespaces": False},
        {"normalization_rule_name": "identity"},
        {"normalization_rule_name": "nfkc_cf"},
        {"split_by_whitespace": False},
        {"control_symbols": ["<a>", "[CLS]"]},
        {"user_defined_symbols": ["ox", "."]},
    ],
    ids=lambda settings: next(iter(settings)),
)
def test_models_that_others_trained(tmp_path, kind, settings):
    from kits.vocabularies import given, make_model

    size = {"vocab_size": 400} if "byte_fallback" in settings else {}
    tokenizer = given(tmp_path, make_model(model_type=kind, **size, **settings))
    theirs = exported(tmp_path / "out", tokenizer)
    assert len(theirs) == tokenizer.size
    # Scores of others are no multiples of 1/256: of equal sums the library's rounding chooses.
    texts = [*PROSE[:100], "two  spaces ", "fox.ox  dog", "é鱼鱼🙂"]
    if not {"add_dummy_prefix", "remove_extra_whitespaces"} & set(settings):
        texts.append(" a space before the text")
    assert len(differing(tokenizer, theirs, texts)) <= (kind == "unigram")


def test_what_no_tokenizer_json_can_say_is_refused():
    from kits.vocabularies import make_model

    from bert_jax.convert import sentencepiece
    from bert_jax.errors import BadInput

    with pytest.raises(BadInput, match="words end with a space"):
        sentencepiece.document(make_model(treat_whitespace_as_suffix=True), {}, [])
    with pytest.raises(BadInput, match="neither unigram nor bpe"):
        sentencepiece.document(make_model(model_type="char"), {}, [])


@pytest.mark.slow
@pytest.mark.parametrize("name", [*PUBLISHED, *KINDS])
def test_ids_of_many_lines(tmp_path, name):
    english, chinese = real_lines("en", 10_000), real_lines("zh", 10_000)
    if name in PUBLISHED:
        tokenizer = tokenizers.given(published(PUBLISHED[name]), name != "cased")
    else:
        texts = english[::4] + chinese[::4]
        tokenizer = tokenizers.train(name, texts, 12_000, True)
    theirs = exported(tmp_path / "out", tokenizer)
    # ALBERT's scores have ties ("66 6" and "6 66"), which the rounding of sentencepiece's float32 sums decides.
    assert len(differing(tokenizer, theirs, english + chinese)) <= (name == "albert")
