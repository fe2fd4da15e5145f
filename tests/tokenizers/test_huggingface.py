"""A tokenizer.json gives the ids of transformers, except that special tokens are not read from text."""

import json
import random

import numpy as np
import pytest
import tokenizers as library
from kits.texts import DIFFICULT, PROSE, check_corpus_encoder, difficult_text, manual_lines
from kits.vocabularies import (
    LLM_JP,
    characters_like,
    digits_like,
    dna,
    dna_like,
    gpt2_like,
    llama_like,
    write_named,
)
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

from bert_jax.errors import BadInput
from bert_jax.tokenizers import tokenizer as tokenizers
from bert_jax.tokenizers.corpus_encoder import CachedEncoder
from bert_jax.tokenizers.special_tokens import TEXT_END

NAMES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
ROBERTAS = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]


def roberta_like():
    """Byte-level BPE without a space before a text, with RoBERTa's special tokens in RoBERTa's order."""
    theirs = library.Tokenizer(models.BPE())
    theirs.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    theirs.decoder = decoders.ByteLevel()
    keys = dict(initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), special_tokens=ROBERTAS)
    trainer = trainers.BpeTrainer(vocab_size=500, **keys)
    theirs.train_from_iterator(PROSE, trainer)
    return theirs


def unigram_like():
    """Unigram over ▁ whose model contains its special tokens, as XLM-R's and ALBERT's do."""
    theirs = library.Tokenizer(models.Unigram())
    theirs.pre_tokenizer = pre_tokenizers.Metaspace()
    theirs.decoder = decoders.Metaspace()
    trainer = trainers.UnigramTrainer(vocab_size=200, special_tokens=ROBERTAS, unk_token="<unk>")
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


def word_like():
    """A piece for each word, as WordLevel has them."""
    theirs = library.Tokenizer(models.WordLevel(unk_token="[UNK]"))
    theirs.pre_tokenizer = pre_tokenizers.Whitespace()
    theirs.train_from_iterator(PROSE, trainers.WordLevelTrainer(special_tokens=NAMES))
    return theirs


# Whether each of them caches units when it encodes a corpus: only if its rules are known to allow it.
MAKERS = {
    roberta_like: True,
    gpt2_like: True,
    llama_like: False,
    unigram_like: False,
    bert_like: True,
}
EVERY = pytest.mark.parametrize("maker", MAKERS)


def save_and_open(tmp_path, theirs, add_special: bool = False) -> tokenizers.Tokenizer:
    path = tmp_path / "tokenizer.json"
    theirs.save(str(path))
    return tokenizers.from_file(path, True, add_special)


def check_transformers(ours, path, texts: list[str]) -> None:
    transformers = pytest.importorskip("transformers")
    theirs = transformers.PreTrainedTokenizerFast(tokenizer_file=str(path))
    texts = [text for text in texts if not any(name in text for name in [*NAMES, *ROBERTAS])]

    def encode(texts):
        return theirs(texts, add_special_tokens=False)["input_ids"]

    assert ours.encode(texts) == encode(texts)
    check_corpus_encoder(ours, texts, encode)


@EVERY
def test_ids_equal_transformers(tmp_path, maker):
    ours = save_and_open(tmp_path, maker())
    assert isinstance(ours.corpus_encoder(), CachedEncoder) == MAKERS[maker]
    check_transformers(ours, tmp_path / "tokenizer.json", PROSE + DIFFICULT + manual_lines(600))


@pytest.mark.parametrize("maker", [digits_like, dna_like, characters_like])
def test_ids_without_word_marks_equal_transformers(tmp_path, maker):
    ours = save_and_open(tmp_path, maker())
    texts = dna(50) + PROSE + DIFFICULT + manual_lines(200) + ["1234567 or 12, 2024"]
    check_transformers(ours, tmp_path / "tokenizer.json", texts)
    assert ours.marks_words == (maker is characters_like)
    special = sorted(ours.special.values())
    assert ours.marks_words or np.flatnonzero(ours.word_starts).tolist() == special
    ours.save(tmp_path / "saved")
    again = tokenizers.load(tmp_path / "saved")
    assert (again.fingerprint, again.marks_words) == (ours.fingerprint, ours.marks_words)


def test_text_around_masks_keeps_its_spaces_without_word_marks(tmp_path):
    ours = save_and_open(tmp_path, digits_like())
    theirs = digits_like()
    for text in ("the [MASK] fox", "[MASK] in 1234567[MASK].", "[MASK]"):
        assert ours.encode_with_masks(text) == theirs.encode(text).ids


@pytest.mark.parametrize("file", ["tokenizer_config.json", "special_tokens_map.json"])
def test_settings_beside_a_file_name_its_special_tokens(tmp_path, file):
    """Also if all are to be appended that it lacks: it lacks none."""
    transformers = pytest.importorskip("transformers")
    directory = write_named(tmp_path / "model")
    theirs = transformers.AutoTokenizer.from_pretrained(directory)
    (directory / "tokenizer_config.json").rename(directory / file)
    for add_special in (False, True):
        ours = tokenizers.from_file(directory / "tokenizer.json", True, add_special)
        assert ours.spellings == LLM_JP | {"unk": "<unk>"} and ours.size == len(theirs)
        special = {name: getattr(theirs, f"{name}_token_id") for name in ours.special}
        assert ours.special == special
    names = [*LLM_JP.values(), *ROBERTAS]
    draw = random.Random(1)
    texts = PROSE + DIFFICULT + [difficult_text(draw) for _ in range(3000)]
    texts = [text for text in texts if not any(name in text for name in names)]
    assert ours.encode(texts) == theirs(texts, add_special_tokens=False)["input_ids"]
    (directory / file).unlink()
    assert tokenizers.from_file(directory, True).spellings["cls"] == "<s>"


def test_named_special_tokens_that_are_missing_have_no_other_spelling(tmp_path):
    """They are appended as they are spelled, a spelling of two tokens once."""
    roberta_like().save(str(tmp_path / "tokenizer.json"))
    settings = {"mask_token": "<M>", "pad_token": {"content": "<P>"}, "cls_token": "<P>"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    ours = tokenizers.from_file(tmp_path, True)
    assert ours.special == {"unk": 3, "sep": 2}
    more = tokenizers.from_file(tmp_path, True, add_special=True)
    assert more.pieces == [*ours.pieces, "<P>", "<M>"]
    added = {"pad": ours.size, "cls": ours.size, "mask": ours.size + 1}
    assert more.special == ours.special | added


@pytest.mark.parametrize("file", ["tokenizer_config.json", "special_tokens_map.json"])
@pytest.mark.parametrize("value", [3, ["<M>"], {"lstrip": True}])
def test_a_special_token_without_spelling_is_named(tmp_path, file, value):
    roberta_like().save(str(tmp_path / "tokenizer.json"))
    (tmp_path / file).write_text(json.dumps({"mask_token": value}))
    with pytest.raises(BadInput, match=f"{tmp_path}/{file}: mask_token="):
        tokenizers.from_file(tmp_path, True)


def test_a_letter_of_text_is_no_word_mark(tmp_path):
    """Ġ marks words of byte-level pieces alone."""
    theirs = digits_like()
    theirs.add_tokens(["Ġ"])
    assert not save_and_open(tmp_path, theirs).marks_words
    theirs.decoder = decoders.ByteLevel()
    assert save_and_open(tmp_path, theirs).mark == "Ġ"


def test_special_tokens_of_external_files_are_found(tmp_path):
    roberta = save_and_open(tmp_path, roberta_like())
    assert roberta.special == {"pad": 1, "unk": 3, "cls": 0, "sep": 2, "mask": 4}
    theirs = llama_like()
    theirs.add_special_tokens(["[UNK]"])  # not the unknown token of the model
    llama = save_and_open(tmp_path, theirs)
    assert llama.special == {"unk": 0, "cls": 1, "sep": 2}
    assert llama.pad is None and llama.mask is None
    gpt2 = save_and_open(tmp_path, gpt2_like())
    assert gpt2.special == dict.fromkeys(("unk", "cls", "sep"), 500)
    assert gpt2.encode_with_masks(f"the [MASK]{TEXT_END}")[-1] == 500 == gpt2.size - 1


@EVERY
def test_missing_special_tokens_are_appended_if_asked(tmp_path, maker):
    """Otherwise the pieces are those of the file."""
    theirs = maker()
    ours = save_and_open(tmp_path, theirs)
    assert ours.pieces == [theirs.id_to_token(id) for id in range(theirs.get_vocab_size())]
    more = save_and_open(tmp_path, theirs, add_special=True)
    assert list(more.special) == ["pad", "unk", "cls", "sep", "mask"]
    missing = more.special.keys() - ours.special.keys()
    assert missing == ({"pad", "mask"} if maker in (llama_like, gpt2_like) else set())
    assert {name: more.special[name] for name in ours.special} == ours.special
    assert more.pieces == ours.pieces + ["[PAD]", "[MASK]"][: len(missing)]
    assert more.encode(PROSE) == ours.encode(PROSE)
    more.save(tmp_path / "saved")
    for again in (
        tokenizers.load(tmp_path / "saved"),
        tokenizers.from_file(tmp_path / "saved" / more.file, True),
    ):
        assert again.special == more.special and again.fingerprint == more.fingerprint


def test_special_tokens_in_text_need_an_unknown_token(tmp_path):
    """A BPE model may have none; it may join the characters of </s>."""
    pieces = ["▁", "<", "/", "s", ">", "</", "s>", "</s>"]
    merges = [("<", "/"), ("s", ">"), ("</", "s>")]
    theirs = library.Tokenizer(models.BPE({piece: id for id, piece in enumerate(pieces)}, merges))
    theirs.pre_tokenizer = pre_tokenizers.Metaspace()
    assert theirs.encode("s </s>").ids == [0, 3, 0, 7]
    with pytest.raises(BadInput, match=r"tokenizer\.json.*special tokens"):
        save_and_open(tmp_path, theirs)


@EVERY
def test_no_special_token_is_read_from_text(tmp_path, maker):
    ours = save_and_open(tmp_path, maker())
    texts = ["the [MASK] fox <mask>", "[CLS]a[SEP]", "<s>a</s> <pad>[PAD]", "<mask>", "[MASK]"]
    special = set(ours.special.values()) - {ours.unk}
    for ids in [*ours.encode(texts), ours.corpus_encoder()([texts])[0].tolist()]:
        assert ids and not special & set(ids)
    ours = save_and_open(tmp_path, maker(), add_special=True)
    start = [*ours.encode(["the"])[0], ours.mask]
    assert ours.encode_with_masks("the [MASK] fox")[: len(start)] == start


@EVERY
def test_the_first_piece_of_each_word_is_a_word_start(tmp_path, maker):
    ours = save_and_open(tmp_path, maker())
    space = " " * (maker in (roberta_like, gpt2_like))  # which add no space before a text
    ids = ours.encode([f"{space}the quick sleeps until tokenizers"])[0]
    assert sum(ours.word_starts[ids]) == 5 and ours.word_starts[ids[0]]
    assert ours.word_starts[list(ours.special.values())].all()


def test_units_are_not_cached_if_pieces_span_words(tmp_path):
    theirs = roberta_like()
    theirs.add_special_tokens(["<|end|>"])
    assert isinstance(save_and_open(tmp_path, theirs).corpus_encoder(), CachedEncoder)
    theirs.add_tokens(["brown fox", "[MASK]"])
    ours = save_and_open(tmp_path, theirs)
    assert not isinstance(ours.corpus_encoder(), CachedEncoder)
    assert ours.pieces[ours.mask] == "[MASK]"
    # The token of both words belongs to the first sentence: it ends nearer to "brown" than "quick" does.
    ids, ends = ours.corpus_encoder()([["the quick brown", "fox jumps"]])
    assert ids.tolist() == ours.encode(["the quick brown fox jumps"])[0]
    assert ids[ends[0] - 1] == ours.pieces.index("brown fox") and ends[1] == len(ids)
    ids = ours.encode(["a brown fox [MASK]"])[0]
    assert ours.pieces.index("brown fox") in ids and not {ours.unk, ours.mask} & set(ids)


# --- Files that the library accepts, and fails with or changes when it encodes ---------------------


def no_type(document):
    """The hub's older files have none; the library finds the type by the keys."""
    del document["model"]["type"]


def renumber(document, *removed):
    """Removes pieces and added tokens; the others close the gaps."""
    vocabulary, added = document["model"]["vocab"], document["added_tokens"]
    rest = [piece for piece in sorted(vocabulary, key=vocabulary.get) if piece not in removed]
    document["model"]["vocab"] = {piece: id for id, piece in enumerate(rest)}
    document["added_tokens"] = [token for token in added if token["content"] not in removed]


def no_unknown(document):
    renumber(document, *NAMES)


def other_unknown(document):
    document["model"]["unk_token"] = "<oov>"


def null_unknown(document):
    document["model"]["unk_id"] = None


def null_unknown_without_names(document):
    null_unknown(document)
    document["added_tokens"] = []
    for number, name in enumerate(ROBERTAS):
        document["model"]["vocab"][number] = [f"{name}NOTUSED", -100.0]


def twice(piece):
    def change(document):
        scores = dict(document["model"]["vocab"])
        document["model"]["vocab"].append([piece, scores[piece]])

    return change


def gap(document):
    del document["model"]["vocab"]["fox"]


def truncated(document):
    rules = {"max_length": 4, "strategy": "LongestFirst", "stride": 0}
    document["truncation"] = {"direction": "Right", **rules}


FILES = [
    *((maker, no_type) for maker in (bert_like, word_like, llama_like, unigram_like)),
    *((maker, other_unknown) for maker in (bert_like, word_like)),
    (unigram_like, null_unknown),
    *((unigram_like, twice(piece)) for piece in ("<unk>", "<mask>", "▁")),
    (bert_like, truncated),
]


@pytest.mark.parametrize("number", [300, pytest.param(3000, marks=pytest.mark.full)])
@pytest.mark.parametrize(("maker", "change"), FILES)
def test_ids_equal_the_library_and_unknown_where_it_fails(tmp_path, maker, change, number):
    document = json.loads(maker().to_str())
    change(document)
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(document))
    ours, theirs = tokenizers.from_file(path, True), library.Tokenizer.from_file(str(path))
    theirs.no_truncation()
    draw, failures = random.Random(1), 0
    texts = [*PROSE[:60], *DIFFICULT, *(difficult_text(draw) for _ in range(number)), "<e1> fox"]
    texts = [text for text in texts if not any(name in text for name in NAMES)]
    for text, ids in zip(texts, ours.encode(texts), strict=True):
        try:
            expected = theirs.encode(text, add_special_tokens=False).ids
        except Exception:  # it has no unknown token
            failures += 1
            assert ours.unk in ids
        else:
            assert ids == expected
    assert (failures > number / 3) == ("unknown" in change.__name__)
    check_corpus_encoder(
        ours, texts[:600], is_exact=False
    )  # a sentence may end with a removed character
    ours.save(tmp_path / "saved")
    assert tokenizers.load(tmp_path / "saved").fingerprint == ours.fingerprint
    (tmp_path / "saved/settings.json").unlink()
    assert (
        tokenizers.from_file(tmp_path / "saved" / ours.file, True).fingerprint == ours.fingerprint
    )


def test_every_piece_of_a_model_of_words_starts_a_word(tmp_path):
    assert save_and_open(tmp_path, word_like()).word_starts.all()


def test_ids_are_the_same_at_every_call(tmp_path):
    theirs = llama_like()
    theirs.model.dropout = 0.5
    ours = save_and_open(tmp_path, theirs)
    assert ours.encode(PROSE * 3) == ours.encode(PROSE) * 3


def panics(document):
    """The library opens this file, and panics at every text."""
    charsmap = "EAAAAP////////////////////8="
    document["normalizer"] = {"type": "Precompiled", "precompiled_charsmap": charsmap}


def far_gap(document):
    """The library, which writes a tokenizer id by id, would need minutes."""
    document["model"]["vocab"]["fox"] = 4_000_000_000


@pytest.mark.parametrize(
    ("maker", "change"),
    [
        (llama_like, panics),
        (bert_like, no_unknown),
        (word_like, no_unknown),
        (unigram_like, null_unknown_without_names),
        (word_like, gap),
        (bert_like, far_gap),
    ],
)
def test_files_without_an_id_for_every_text_are_refused(tmp_path, maker, change):
    document = json.loads(maker().to_str())
    change(document)
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(document))
    with pytest.raises(BadInput, match=str(path)):
        tokenizers.from_file(path, True)
