"""A tokenizer.json gives the ids that transformers reads from it, but no special ones from a text."""

import json

import pytest
import tokenizers as library
from kits.texts import NASTY, PROSE, odd_lines, published
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

from bert_jax.errors import BadInput
from bert_jax.tokenizers import tokenizer as tokenizers
from bert_jax.tokenizers.library import SPACED
from bert_jax.tokenizers.table import Direct, Units

NAMES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def roberta_like():
    """Byte-level BPE, no space before a text, RoBERTa's special pieces in RoBERTa's order."""
    theirs = library.Tokenizer(models.BPE())
    theirs.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    theirs.decoder = decoders.ByteLevel()
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=500, initial_alphabet=alphabet, special_tokens=special)
    theirs.train_from_iterator(PROSE, trainer)
    return theirs


def llama_like():
    """BPE over ▁ with bytes for unknown characters; neither padding nor mask."""
    theirs = library.Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True))
    theirs.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    special = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    theirs.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1),
        ]
    )
    trainer = trainers.BpeTrainer(vocab_size=600, special_tokens=special)
    words = sorted({word for text in PROSE for word in text.split()})
    theirs.train_from_iterator(words, trainer)
    return theirs


def unigram_like():
    """Unigram over ▁ that holds its special pieces, as XLM-R's and ALBERT's do."""
    theirs = library.Tokenizer(models.Unigram())
    theirs.pre_tokenizer = pre_tokenizers.Metaspace()
    theirs.decoder = decoders.Metaspace()
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    trainer = trainers.UnigramTrainer(vocab_size=200, special_tokens=special, unk_token="<unk>")
    theirs.train_from_iterator(PROSE, trainer)
    return theirs


def bert_like():
    theirs = library.Tokenizer(models.WordPiece(unk_token="[UNK]"))
    theirs.normalizer = normalizers.BertNormalizer(lowercase=True)
    theirs.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    theirs.decoder = decoders.WordPiece()
    trainer = trainers.WordPieceTrainer(vocab_size=300, special_tokens=NAMES)
    theirs.train_from_iterator(PROSE, trainer)
    return theirs


MAKERS = {maker.__name__: maker for maker in (roberta_like, llama_like, unigram_like, bert_like)}


def given(tmp_path, theirs) -> tokenizers.Tokenizer:
    path = tmp_path / "tokenizer.json"
    theirs.save(str(path))
    return tokenizers.given(path, True)


def without_special(texts: list[str]) -> list[str]:
    names = [*NAMES, "<s>", "</s>", "<pad>", "<unk>", "<mask>"]
    return [text for text in texts if not any(name in text for name in names)]


def check_transformers(ours, path, texts: list[str]) -> None:
    transformers = pytest.importorskip("transformers")
    theirs = transformers.PreTrainedTokenizerFast(tokenizer_file=str(path))
    texts = without_special(texts)
    expected = theirs(texts, add_special_tokens=False)["input_ids"]
    assert ours.encode(texts) == expected
    table = ours.table()
    for part in range(0, len(texts), 50):  # a line break in a text sends its whole call another way
        ids, ends = table.encode(texts[part : part + 50])
        assert ids.tolist() == [number for ids in expected[part : part + 50] for number in ids]
        assert len(ends) == len(expected[part : part + 50])


@pytest.mark.parametrize("name", MAKERS)
def test_ids_equal_transformers(tmp_path, name):
    ours = given(tmp_path, MAKERS[name]())
    check_transformers(ours, tmp_path / "tokenizer.json", PROSE + NASTY + odd_lines(600))


def test_ids_of_bert_in_another_file(tmp_path):
    transformers = pytest.importorskip("transformers")
    vocabulary = published("bert_base_cased_vocab.txt")
    transformers.BertTokenizer(str(vocabulary), do_lower_case=False).save_pretrained(tmp_path)
    ours, same = (
        tokenizers.given(tmp_path / "tokenizer.json", True),
        tokenizers.given(vocabulary, False),
    )
    texts = odd_lines(600) + NASTY
    assert (ours.pieces, ours.special) == (same.pieces, same.special)
    assert ours.encode(texts) == same.encode(texts)
    assert (ours.word_starts == same.word_starts).all()


@pytest.mark.slow
@pytest.mark.parametrize("lowercase", [True, False])
def test_ids_of_many_lines_equal_transformers(tmp_path, lowercase):
    texts = odd_lines(20_000)
    ours = tokenizers.train("byte_bpe", texts[::4], 8000, lowercase)
    ours.save(tmp_path)
    check_transformers(ours, tmp_path / "tokenizer.json", texts)


def test_special_pieces_of_others(tmp_path):
    assert given(tmp_path, roberta_like()).special == {
        "pad": 1,
        "unk": 3,
        "cls": 0,
        "sep": 2,
        "mask": 4,
    }
    llama = given(tmp_path, llama_like())
    size = llama.size - 2
    assert llama.special == {"pad": size, "unk": 0, "cls": 1, "sep": 2, "mask": size + 1}
    assert llama.pieces[size:] == ["[PAD]", "[MASK]"]


@pytest.mark.parametrize("name", MAKERS)
def test_no_special_piece_is_read_from_text(tmp_path, name):
    ours = given(tmp_path, MAKERS[name]())
    texts = ["the [MASK] fox <mask>", "[CLS]a[SEP]", "<s>a</s> <pad>[PAD]", "<mask>", "[MASK]"]
    special = set(ours.special.values()) - {ours.unk}
    for ids in [*ours.encode(texts), ours.table().encode(texts)[0].tolist()]:
        assert ids and not special & set(ids)
    ids = ours.encode_with_masks("the [MASK] fox")
    assert ids.count(ours.mask) == 1
    assert ours.decode(ids) == f"the {ours.pieces[ours.mask]} fox"


@pytest.mark.parametrize("name", MAKERS)
def test_word_starts(tmp_path, name):
    ours = given(tmp_path, MAKERS[name]())
    space = " " * (name == "roberta_like")  # which puts none before a text
    ids = ours.encode([f"{space}the quick sleeps until tokenizers"])[0]
    assert sum(ours.word_starts[ids]) == 5 and ours.word_starts[ids[0]]
    assert ours.word_starts[list(ours.special.values())].all()


def test_units_only_where_they_are_known_to_be_valid(tmp_path):
    for maker, kind in zip(MAKERS.values(), (Units, Direct, Direct, Units), strict=True):
        assert type(given(tmp_path, maker()).table()) is kind
    theirs = roberta_like()
    theirs.add_tokens(["brown fox"])  # a piece across words
    ours = given(tmp_path, theirs)
    assert type(ours.table()) is Direct and ours.size - 1 in ours.encode(["a brown fox"])[0]


def test_readable_pieces(tmp_path):
    ours = given(tmp_path, roberta_like())
    shown = [ours.readable(number) for number in ours.encode([" the é\n"])[0]]
    assert "".join(shown) == "▁the▁é\n" or shown[-1] == "\n" and "▁the" in shown
    assert ours.readable(ours.pieces.index("¸")) == "\\xb8" and ours.readable(ours.mask) == "<mask>"


def altered(**changes) -> str:
    document = json.loads(bert_like().to_str())
    return json.dumps(document | changes)


@pytest.mark.parametrize(
    "content, message",
    [
        (None, "No such file"),
        ("{", "not a tokenizer"),
        ("[]", "model type None"),
        ('{"kind": "wordpiece", "lowercase": true}', "model type None"),
        ('{"model": {"type": "WordLevel", "vocab": {}}}', "model type 'WordLevel'"),
        ('{"model": {"type": "BPE"}}', "not a tokenizer"),
        (altered(model={"type": "BPE", "vocab": {"a": 0}, "merges": []}), "where words start"),
        (altered(model={"type": "WordPiece", "vocab": {"a": 0, "b": 7}}, added_tokens=[]), "gaps"),
        (altered(truncation="~"), "not a tokenizer"),
        (altered(padding=[1]), "not a tokenizer"),
    ],
)
def test_bad_files(tmp_path, content, message):
    path = tmp_path / "tokenizer.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(BadInput, match=message) as error:
        tokenizers.given(path, True)
    assert str(path) in str(error.value) and "\n" not in str(error.value)


def test_byte_level_knows_everything():
    ours = tokenizers.train("byte_bpe", PROSE, 300, False)
    texts = [text for text in NASTY if text.strip()]
    ids = ours.encode(texts)
    assert not any(ours.unk in text for text in ids)
    assert [ours.model.decode(text) for text in ids] == [
        text if text[0].isspace() else f" {text}" for text in texts
    ]
    lowered = tokenizers.train("byte_bpe", PROSE, 300, True)
    assert (
        lowered.encode(["THE Élan"]) == lowered.encode(["the élan"]) != lowered.encode(["the elan"])
    )
    with pytest.raises(
        BadInput, match="config.tokenizer.size=260: too few, single bytes alone take 261"
    ):
        tokenizers.train("byte_bpe", PROSE, 260, True)


def test_units_end_at_single_spaces():
    assert SPACED.findall("a bc  d e\n f \u3000g \n") == [
        "a",
        " bc  d",
        " e",
        "\n",
        " f \u3000g ",
        "\n",
    ]


def test_a_special_piece_that_the_file_calls_ordinary(tmp_path):
    theirs = roberta_like()
    theirs.add_tokens(["[MASK]"])
    ours = given(tmp_path, theirs)
    assert ours.pieces[ours.mask] == "[MASK]" and ours.unk not in ours.encode(["a [MASK]"])[0]
    assert ours.mask not in ours.encode(["a [MASK]"])[0]


def test_the_unknown_piece_is_the_one_that_text_gets(tmp_path):
    theirs = llama_like()
    theirs.add_special_tokens(["[UNK]"])
    ours = given(tmp_path, theirs)
    assert ours.pieces[ours.unk] == "<unk>" and "[UNK]" in ours.pieces
