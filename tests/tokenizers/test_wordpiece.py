"""WordPiece ids equal those of a pure Python implementation, for trained and published vocabularies."""

from collections import Counter

import pytest
from kits.texts import DIFFICULT, PROSE, check_corpus_encoder, manual_lines, odd_lines, published

from bert_jax.tokenizers import tokenizer as tokenizers
from bert_jax.tokenizers import wordpiece


def check_python(path, lowercase: bool, texts: list[str]) -> None:
    """Checks that ids equal those of transformers' port of Google's tokenization.py, which shares no code with ours.

    The port reads special tokens from text, unlike ours, so its inner functions are called, which do not.
    """
    legacy = pytest.importorskip("transformers.models.bert.tokenization_bert_legacy")
    theirs = legacy.BertTokenizerLegacy(str(path), do_lower_case=lowercase)
    words, pieces = theirs.basic_tokenizer.tokenize, theirs.wordpiece_tokenizer.tokenize

    def encode(texts):
        return [[theirs.vocab[p] for word in words(text) for p in pieces(word)] for text in texts]

    ours = tokenizers.from_file(path, lowercase)
    assert ours.encode(texts) == encode(texts)
    check_corpus_encoder(ours, texts, encode)
    names = ("pad", "unk", "cls", "sep", "mask")
    assert ours.special == {name: getattr(theirs, f"{name}_token_id") for name in names}


# Texts without two unintended differences: Python lower-cases a final sigma differently, and the port composes
# characters, which Google's code does not.
SAME = [text for text in DIFFICULT if "ΣΑΣ" not in text and "e\u0301" not in text]


@pytest.mark.parametrize("lowercase", [True, False])
def test_ids_of_a_trained_vocabulary_equal_pure_python(tmp_path, lowercase):
    texts = manual_lines(1000)
    tokenizers.train("wordpiece", texts[::2], 4000, lowercase).save(tmp_path)
    check_python(tmp_path / "vocab.txt", lowercase, texts + SAME)


@pytest.mark.slow
@pytest.mark.parametrize("number", [500, pytest.param(20_000, marks=pytest.mark.full)])
@pytest.mark.parametrize("name", ["uncased", "cased", "chinese"])
def test_ids_of_googles_vocabularies_equal_pure_python(name, number):
    path = published(f"bert_base_{name}_vocab.txt")
    check_python(path, name != "cased", odd_lines(number) + SAME)


def test_a_vocabulary_may_begin_with_a_byte_order_mark(tmp_path):
    tokenizer = tokenizers.train("wordpiece", PROSE, 400, True)
    tokenizer.save(tmp_path / "saved")
    path = tmp_path / "vocab.txt"
    path.write_bytes(b"\xef\xbb\xbf" + (tmp_path / "saved" / "vocab.txt").read_bytes())
    assert tokenizers.from_file(path, True).fingerprint == tokenizer.fingerprint


def test_each_ideograph_begins_a_word():
    """Each ideograph begins a word; pieces that continue a word begin with ##."""
    tokenizer = tokenizers.train("wordpiece", [*PROSE, "数学是研究数量结构变化"] * 2, 400, True)
    pieces = [tokenizer.pieces[number] for number in tokenizer.encode(["数学a是"])[0]]
    assert pieces == ["数", "学", "a", "是"]
    starts = dict(zip(tokenizer.pieces, tokenizer.word_starts, strict=True))
    continues = {piece for piece, start in starts.items() if not start}
    assert continues == {piece for piece in tokenizer.pieces if piece.startswith("##")} != set()
    assert "quick" in tokenizer.pieces


@pytest.mark.parametrize("texts", [[], [""], ["\x01 \u200b"]])
def test_a_text_without_words_trains_the_special_tokens_alone(texts):
    tokenizer = tokenizers.train("wordpiece", texts, 400, True)
    assert set(tokenizer.pieces) == {
        tokenizer.pieces[number] for number in tokenizer.special.values()
    }


def test_a_frequent_word_is_repeated_in_short_texts():
    words = Counter({"the": 1_000_000, "a": 1_000_000, "rare": 1})
    texts = [*wordpiece.repeat(words)]
    assert max(map(len, texts)) < 1_000_000
    assert Counter(" ".join(texts).split()) == {"the": 1_000_000, "rare": 1}
