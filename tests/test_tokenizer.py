"""Ids equal those of other people's programs, fast path and slow; training is deterministic."""

import lzma
import random
import subprocess
import sys
import unicodedata
from pathlib import Path

import numpy as np
import pytest

from bert_jax import tokenizer as tokenizers
from bert_jax.errors import BadInput

DATA = Path(__file__).parents[2] / "shared" / "data"
VOCABULARIES = {"uncased": True, "cased": False, "chinese": True}

PROSE = [
    "The quick brown fox jumps over the lazy dog, and then it sleeps until the evening.",
    "A tokenizer parts words into pieces; unknown words become many pieces, or none.",
    "Élan vital, naïve façades: coöperation isn't déjà-vu.",
] * 20

NASTY = [
    "",
    " ",
    "\t\n\r",
    "\x00\ufffd\x0b\x0c\x1c\x85",
    "a\x00b\x0bc\x1cd\x85e\u200bf\u00adg",
    "a\xa0b\u3000c\u2028d",
    "e\u0301 =\u0338a a\u226fb \u037e \u1fef",
    "İSTANBUL ΣΑΣ ß ŉ ǰ ﬁ",
    "[MASK] [CLS] [SEP] [UNK] [PAD] ##ing [unused1]",
    "他来了。She said:“好”！漢字かな交じり文 \uf900\u2f800 \U00020000",
    "한국어 가각",
    "x" * 100 + " " + "x" * 101 + " " + "x" * 200,
    "don't-do_it@home.com $5.00 50% ~`^<>|",
    "🙂👩‍👩‍👧 ①½ Ⅷ",
    "\u0301start \u0301\u0302",
]


def nasty(draw: random.Random) -> str:
    """A random string of what normalizers stumble over."""
    alphabet = "aAzZ09éÉßİΣς ́̈=.,!'\"-_[]#  \t\n\r\x00\x0b\x0c\x1c\x85\xa0\u200b\u3000\ufffd。中漢か가ﬁ½🙂\u226f\u037e"
    return "".join(draw.choice(alphabet) for _ in range(draw.randrange(40)))


def published(name: str) -> tuple[Path, bool]:
    path = DATA / "vocab" / f"bert_base_{name}_vocab.txt"
    if not path.exists():
        pytest.skip(f"needs {path}")
    return path, VOCABULARIES[name]


def real_text(name: str, size: int = 300_000) -> list[str]:
    path = next((DATA / ("zhwiki" if name == "chinese" else "enwiki")).glob("*.xz"))
    with lzma.open(path, "rt", encoding="utf-8") as file:
        return file.read(size).split("\n")


def trained() -> tokenizers.Tokenizer:
    return tokenizers.train("wordpiece", PROSE + NASTY, 400, True)


@pytest.mark.parametrize("name", VOCABULARIES)
def test_ids_equal_transformers(name):
    transformers = pytest.importorskip("transformers")
    path, lowercase = published(name)
    theirs = transformers.BertTokenizer(str(path), do_lower_case=lowercase)
    ours = tokenizers.from_vocab(path, lowercase)
    # Theirs reads special pieces in a text; ours does not, on purpose, so those are left out.
    texts = [text for text in real_text(name, 100_000) + NASTY if "[" not in text]
    assert ours.encode(texts) == theirs(texts, add_special_tokens=False)["input_ids"]
    assert (ours.pad, ours.unk, ours.cls) == (
        theirs.pad_token_id,
        theirs.unk_token_id,
        theirs.cls_token_id,
    )
    assert (ours.sep, ours.mask) == (theirs.sep_token_id, theirs.mask_token_id)


@pytest.mark.parametrize("name", VOCABULARIES)
def test_table_equals_library_on_real_text(name):
    path, lowercase = published(name)
    tokenizer = tokenizers.from_vocab(path, lowercase)
    check_table(tokenizers.WordTable(tokenizer), real_text(name))


@pytest.mark.parametrize("lowercase", [True, False])
def test_table_equals_library_on_nasty_text(lowercase):
    tokenizer = tokenizers.train("wordpiece", PROSE + NASTY, 400, lowercase)
    draw = random.Random(1)
    texts = NASTY + [nasty(draw) for _ in range(5000)]
    check_table(tokenizers.WordTable(tokenizer), texts)


def test_table_is_bounded_and_forgets_nothing_it_needs():
    tokenizer = trained()
    table = tokenizers.WordTable(tokenizer, units=50, characters=300)
    draw = random.Random(2)
    for _ in range(100):
        check_table(table, [nasty(draw) for _ in range(10)])
        assert len(table.numbers) < 1000
    check_table(table, [])


def check_table(table: tokenizers.WordTable, texts: list[str]) -> None:
    ids, ends = table.encode(texts)
    parts = np.split(ids, ends[:-1]) if texts else []
    assert [part.tolist() for part in parts] == table.tokenizer.encode(texts)


def test_ids_equal_the_original_algorithm():
    path, _ = published("uncased")
    tokenizer = tokenizers.from_vocab(path, True)
    vocabulary = {piece: number for number, piece in enumerate(tokenizer.pieces)}
    texts = real_text("uncased", 30_000) + PROSE[:3]
    expected = [
        [vocabulary[piece] for piece in original_pieces(text, vocabulary)] for text in texts
    ]
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


def test_text_never_makes_special_pieces_but_predict_can():
    tokenizer = trained()
    special = set(tokenizer.special.values()) - {tokenizer.unk}
    text = "the [MASK] fox [SEP]"
    assert not special & set(tokenizer.encode([text])[0])
    ids = tokenizer.encode_with_masks(text)
    fox = tokenizer.encode(["fox"])[0]
    assert ids == [*tokenizer.encode(["the"])[0], tokenizer.mask, *fox, tokenizer.sep]
    assert tokenizer.encode_with_masks("the mask") == tokenizer.encode(["the mask"])[0]


def test_trained_vocabulary():
    tokenizer = trained()
    assert tokenizer.pieces[:5] == ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    assert list(tokenizer.special.values()) == [0, 1, 2, 3, 4]
    assert tokenizer.size == len(tokenizer.pieces) <= 400
    assert (
        "quick" in tokenizer.pieces
        and tokenizer.decode(tokenizer.encode(["Quick fox"])[0]) == "quick fox"
    )
    continues = {
        piece
        for piece, starts in zip(tokenizer.pieces, tokenizer.word_starts, strict=True)
        if not starts
    }
    assert continues == {piece for piece in tokenizer.pieces if piece.startswith("##")} != set()


def test_training_is_deterministic_over_processes():
    # The library's hash maps are seeded anew in each process; text enough for ties between merges.
    code = (
        "import random; from bert_jax import tokenizer as t; d = random.Random(1);"
        "w = [''.join(d.choices('abcdefghij\\u0434\\u0436', k=5)) for _ in range(300)];"
        "print(t.train('wordpiece', iter([' '.join(d.choices(w, k=20)) for _ in range(100)]), 300, True).fingerprint)"
    )
    found = {subprocess.check_output([sys.executable, "-c", code]) for _ in range(4)}
    assert len(found) == 1


def test_too_small_a_vocabulary_is_refused():
    with pytest.raises(BadInput, match="tokenizer.size=20: too few"):
        tokenizers.train("wordpiece", PROSE, 20, True)


@pytest.mark.parametrize("lowercase", [True, False])
def test_saved_and_loaded(tmp_path, lowercase):
    tokenizer = tokenizers.train("wordpiece", PROSE + NASTY, 400, lowercase)
    tokenizer.save(tmp_path)
    loaded = tokenizers.load(tmp_path)
    assert loaded.pieces == tokenizer.pieces and loaded.fingerprint == tokenizer.fingerprint
    assert loaded.encode(PROSE + NASTY) == tokenizer.encode(PROSE + NASTY)


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
        tokenizers.from_vocab(path, True)
    assert str(path) in str(error.value) and "\n" not in str(error.value)


def test_bad_saved_tokenizers(tmp_path):
    with pytest.raises(BadInput, match="no such file"):
        tokenizers.load(tmp_path)
    for text, message in [
        ("{", "not a saved"),
        ("[]", "not a saved"),
        ('{"kind": "x", "lowercase": true}', "'x'"),
    ]:
        (tmp_path / "tokenizer.json").write_text(text)
        with pytest.raises(BadInput, match=message):
            tokenizers.load(tmp_path)
