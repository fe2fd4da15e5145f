"""Ids equal those of BERT's own tokenizers; vocabularies of others are read, broken ones refused."""

import unicodedata
from collections import Counter

import pytest
from kits.texts import NASTY, PROSE, odd_lines, published, real_lines

from bert_jax.errors import BadInput
from bert_jax.tokenizers import tokenizer as tokenizers
from bert_jax.tokenizers import wordpiece

VOCABULARIES = {"uncased": True, "cased": False, "chinese": True}


def vocabulary(name: str) -> tuple:
    """(vocab.txt, whether it is lower-cased) of one of Google's."""
    return published(f"bert_base_{name}_vocab.txt"), VOCABULARIES[name]


def check_transformers(name: str, texts: list[str]) -> None:
    transformers = pytest.importorskip("transformers")
    path, lowercase = vocabulary(name)
    theirs = transformers.BertTokenizer(str(path), do_lower_case=lowercase)
    ours = tokenizers.given(path, lowercase)
    # Theirs reads special pieces in a text; ours does not, on purpose, so those are left out.
    texts = [
        text for text in texts if not any(piece in text for piece in theirs.all_special_tokens)
    ]
    expected = theirs(texts, add_special_tokens=False)["input_ids"]
    assert ours.encode(texts) == expected
    ids, ends = ours.table().encode(texts)
    assert ids.tolist() == [number for text in expected for number in text]
    assert ends[-1] == len(ids) and len(ends) == len(texts)
    names = ("pad", "unk", "cls", "sep", "mask")
    assert ours.special == {name: getattr(theirs, f"{name}_token_id") for name in names}


@pytest.mark.parametrize("name", VOCABULARIES)
def test_ids_equal_transformers(name):
    check_transformers(name, odd_lines(600) + NASTY)


@pytest.mark.slow
@pytest.mark.parametrize("name", VOCABULARIES)
def test_ids_of_many_lines_equal_transformers(name):
    check_transformers(name, odd_lines(20_000))


def test_ids_equal_the_original_algorithm():
    path, _ = vocabulary("uncased")
    tokenizer = tokenizers.given(path, True)
    numbers = {piece: number for number, piece in enumerate(tokenizer.pieces)}
    texts = real_lines("en", 100) + PROSE[:3]
    expected = [[numbers[piece] for piece in original_pieces(text, numbers)] for text in texts]
    assert tokenizer.encode(texts) == expected


def original_pieces(text: str, vocabulary: dict) -> list[str]:
    """google-research/bert tokenization.py, uncased, told in few words."""
    text = "".join(f" {c} " if "\u4e00" <= c <= "\u9fff" else c for c in text).lower()
    text = "".join(c for c in unicodedata.normalize("NFD", text) if unicodedata.category(c) != "Mn")
    text = "".join(f" {c} " if is_punctuation(c) else c for c in text)
    return [piece for word in text.split() for piece in original_word(word, vocabulary)]


def is_punctuation(c: str) -> bool:
    ascii_mark = c.isascii() and not c.isalnum() and c.isprintable() and c != " "
    return ascii_mark or unicodedata.category(c).startswith("P")


def original_word(word: str, vocabulary: dict) -> list[str]:
    pieces, start = [], 0
    while start < len(word):
        mark = "##" if start else ""
        ends = range(len(word), start, -1)
        end = next((end for end in ends if mark + word[start:end] in vocabulary), None)
        if end is None:
            return ["[UNK]"]
        pieces.append(mark + word[start:end])
        start = end
    return pieces


def test_chinese_is_cut_into_single_characters():
    path, lowercase = vocabulary("chinese")
    tokenizer = tokenizers.given(path, lowercase)
    text = "数学是研究数量结构变化以及空间的一门学科漢字"
    assert [tokenizer.pieces[number] for number in tokenizer.encode([text])[0]] == list(text)
    starts = tokenizer.word_starts
    for number in {number for ids in tokenizer.encode(real_lines("zh", 200)) for number in ids}:
        piece = tokenizer.pieces[number]
        if any("\u4e00" <= c <= "\u9fff" for c in piece):
            assert len(piece) == 1 and starts[number]


def test_pieces_that_continue_a_word():
    tokenizer = tokenizers.train("wordpiece", PROSE + NASTY, 400, True)
    starts = dict(zip(tokenizer.pieces, tokenizer.word_starts, strict=True))
    continues = {piece for piece, start in starts.items() if not start}
    assert continues == {piece for piece in tokenizer.pieces if piece.startswith("##")} != set()
    assert "quick" in tokenizer.pieces


@pytest.mark.parametrize("count, kept", [(1, "a"), (100, "aé")])
def test_characters_are_kept_by_their_share_of_the_text(count, kept):
    """Of 0.9999, not of its words."""
    words = Counter({"a": 100_000, "é": count})
    assert "".join(wordpiece.alphabet(words, False)) == kept


SPECIAL = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n"


@pytest.mark.parametrize(
    "content, message",
    [
        (None, "cannot read the vocabulary"),
        (b"", r"no piece \[PAD\]"),
        (b"[PAD]\n[UNK]\n[CLS]\n[SEP]\na\n", r"no piece \[MASK\] among its 5"),
        (SPECIAL.encode() + b"a\nb\na\n", "'a' on line 6 and again on line 8"),
        (SPECIAL.encode() + b"\xff\xfe\n", "not UTF-8"),
    ],
)
def test_bad_vocabularies(tmp_path, content, message):
    path = tmp_path / "vocab.txt"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(BadInput, match=message) as error:
        tokenizers.given(path, True)
    assert str(path) in str(error.value) and "\n" not in str(error.value)
