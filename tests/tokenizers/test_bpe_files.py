"""GPT-2's and GPT's two files give the ids of their classes in transformers; the text comes back."""

import json
import lzma
import random
from itertools import islice

import pytest
import transformers
from kits.paths import data
from kits.texts import (
    DIFFICULT,
    PROSE,
    check_corpus_encoder,
    difficult_text,
    manual_lines,
    odd_lines,
)
from kits.vocabularies import write_bpe_files

from bert_jax.errors import BadInput
from bert_jax.tokenizers import tokenizer as tokenizers
from bert_jax.tokenizers.special_tokens import TEXT_END

NAMES = {
    ("vocab.json", "merges.txt"): False,
    ("encoder.json", "vocab.bpe"): False,
    ("encoder_bpe_40000.json", "vocab_40000.bpe"): True,
}
EVERY = pytest.mark.parametrize(
    ("names", "is_gpt"), [*NAMES.items(), (("vocab.json", "merges.txt"), True)]
)
SPACES = " \t\n\r\x0b\x0c\x1c\x85\xa0\u2003\u2028\u3000\u200b"


def texts() -> list[str]:
    draw = random.Random(3)
    hostile = [difficult_text(draw) for _ in range(300)]
    hostile += ["".join(draw.choices(SPACES + "fox.'s", k=20)) for _ in range(300)]
    return ["  The fox\n\n's \t", *PROSE[:70], *DIFFICULT, *manual_lines(100), *hostile]


def check_transformers(directory, names, is_gpt: bool, texts: list[str]) -> None:
    """Compares with the class of GPT or GPT-2: pieces, special tokens, ids, and the texts of these."""
    vocabulary, merges = (str(directory / name) for name in names)
    kind = transformers.OpenAIGPTTokenizer if is_gpt else transformers.GPT2Tokenizer
    theirs = kind(vocab=vocabulary, merges=merges)
    ours = tokenizers.from_file(directory, True)
    assert ours.size == len(theirs)
    last = ours.size - 1
    special = {"unk": 0} if is_gpt else dict.fromkeys(("unk", "cls", "sep"), last)
    assert ours.special == special

    def encode(texts):
        return theirs(texts, add_special_tokens=False, verbose=False)["input_ids"]

    expected = encode(texts)
    assert ours.encode(texts) == expected
    decoded = texts
    if is_gpt:
        decoded = [theirs.decode(ids, skip_special_tokens=True) for ids in expected]
    assert list(map(ours.decode, expected)) == decoded
    check_corpus_encoder(ours, texts[:200], encode, is_exact=not is_gpt)
    for name in names:
        assert tokenizers.from_file(directory / name, True).fingerprint == ours.fingerprint


@EVERY
def test_ids_equal_transformers(tmp_path, names, is_gpt):
    directory = write_bpe_files(tmp_path / "gpt", names, is_gpt)
    check_transformers(directory, names, is_gpt, texts())


@pytest.mark.full
@pytest.mark.parametrize("name", ["gpt2_vocab", "gpt1_vocab"])
def test_ids_of_published_vocabularies_equal_transformers(name):
    is_gpt = name == "gpt1_vocab"
    names = (
        ("encoder_bpe_40000.json", "vocab_40000.bpe") if is_gpt else ("encoder.json", "vocab.bpe")
    )
    plays = lzma.open(data("tinyshakespeare", "input.txt.xz"), "rt", newline="").read()
    parts = [plays[first : first + 1500] for first in range(0, len(plays), 1500)]
    with lzma.open(next(data("simplewiki").glob("*.xz")), "rt", encoding="utf-8") as file:
        articles = list(islice(file, 8000))
    check_transformers(data(name), names, is_gpt, [*texts(), *parts, *articles, *odd_lines(4000)])


@EVERY
def test_it_is_saved_and_gets_special_tokens(tmp_path, names, is_gpt):
    directory = write_bpe_files(tmp_path / "gpt", names, is_gpt)
    ours = tokenizers.from_file(directory, True, add_special=True)
    added = ["[PAD]", "[CLS]", "[SEP]", "[MASK]"] if is_gpt else ["[PAD]", "[MASK]"]
    assert ours.pieces[500 + (not is_gpt) :] == added
    tokenizers.from_file(directory, True).save(tmp_path / "saved")
    again = tokenizers.from_file(tmp_path / "saved", True, add_special=True)
    assert again.fingerprint == ours.fingerprint
    ours.save(tmp_path / "saved")
    loaded = tokenizers.load(tmp_path / "saved")
    assert loaded.fingerprint == ours.fingerprint
    assert tokenizers.from_file(tmp_path / "saved", True).fingerprint == ours.fingerprint
    assert loaded.encode(PROSE[:5]) == tokenizers.from_file(directory, True).encode(PROSE[:5])


def test_words_are_counted_by_their_ends(tmp_path):
    directory = write_bpe_files(tmp_path / "gpt", ("vocab.json", "merges.txt"), True)
    ours = tokenizers.from_file(directory, True)
    (ids,) = ours.encode(["Foxes, unknown tokenizers"])
    assert ours.word_starts[ids].sum() == 4 < len(ids)


def no_merges(directory):
    (directory / "merges.txt").unlink()


def empty_merges(directory):
    (directory / "merges.txt").write_text("#version: 0.2\n")


def merges_of_others(directory):
    (directory / "merges.txt").write_text("#version: 0.2\n\u4e00 \u4e01\n")


def no_object(directory):
    (directory / "vocab.json").write_text("[1]")


def gap(directory):
    change(directory, lambda pieces: pieces.update({"fox</w>": 4_000_000_000}))


def no_unknown(directory):
    change(directory, lambda pieces: pieces.update({TEXT_END: pieces.pop("<unk>")}))


def change(directory, edit):
    path = directory / "vocab.json"
    pieces = json.loads(path.read_text())
    edit(pieces)
    path.write_text(json.dumps(pieces))


@pytest.mark.parametrize(
    "damage", [no_merges, empty_merges, merges_of_others, no_object, gap, no_unknown]
)
def test_damaged_files_are_refused(tmp_path, damage):
    directory = write_bpe_files(tmp_path / "gpt", ("vocab.json", "merges.txt"), True)
    damage(directory)
    with pytest.raises(BadInput, match=str(directory)):
        tokenizers.from_file(directory, True)


@pytest.mark.parametrize("line", ["the", "t h e"])
def test_a_line_that_is_no_merge_is_refused(tmp_path, line):
    directory = write_bpe_files(tmp_path / "gpt", ("vocab.json", "merges.txt"), True)
    (directory / "merges.txt").write_text(f"#version: 0.2\nt h\n{line}\nt h\n")
    with pytest.raises(BadInput, match=f"^{directory}/vocab.json"):
        tokenizers.from_file(directory / "vocab.json", True)
    (directory / "merges.txt").write_text("#version: 0.2\n\n\n")
    with pytest.raises(BadInput, match=f"^{directory}/merges.txt: has no merges"):
        tokenizers.from_file(directory / "vocab.json", True)


def test_rules_in_a_tokenizer_json_take_precedence(tmp_path):
    """The two files do not have them."""
    directory = write_bpe_files(tmp_path / "gpt", ("vocab.json", "merges.txt"), False)
    (directory / "tokenizer.json").write_text("{}")
    with pytest.raises(BadInput, match="tokenizer.json"):
        tokenizers.from_file(directory, True)
    assert tokenizers.from_file(directory / "vocab.json", True).size == 501
