"""What a tokenizer loses: characters that it drops or does not know, and marks that it strips."""

from collections.abc import Iterable

import pytest
import tokenizers as library
from kits.texts import PROSE
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel, Metaspace

from bert_jax.data.preparation.lost_text import count_lost
from bert_jax.tokenizers import tokenizer as tokenizers


def bpe(letters: Iterable[str], splitter) -> library.Tokenizer:
    """Returns a BPE tokenizer without an unknown token, which drops all other characters."""
    vocabulary = {piece: number for number, piece in enumerate(letters)}
    tokenizer = library.Tokenizer(BPE(vocabulary, []))
    tokenizer.pre_tokenizer = splitter
    return tokenizer


@pytest.mark.parametrize(
    "maker, text, lost",
    [
        (lambda: bpe("▁ab", Metaspace()), "ab xx xa b\u00e9 ab", 4),
        (lambda: bpe("▁กข", Metaspace()), "กข กคคข งง", 4),
        (lambda: bpe("Ġab", ByteLevel()), "ab xx xa b ab", 3),
        (lambda: bpe(sorted(ByteLevel.alphabet()), ByteLevel()), "กข ab \u00e9 🙂", 0),
    ],
)
def test_characters_that_a_tokenizer_drops_are_counted(tmp_path, maker, text, lost):
    maker().save(str(tmp_path / "tokenizer.json"))
    tokenizer = tokenizers.from_file(tmp_path / "tokenizer.json", False)
    counts = count_lost([text, "", text], tokenizer)
    assert counts["unknown_characters"] == 2 * lost and not counts["stripped_marks"]


@pytest.mark.parametrize("kind", ["wordpiece", "unigram", "bpe"])
def test_characters_that_are_unknown_are_counted(kind):
    """A character of control, which the rules delete, and spaces count as known."""
    tokenizer = tokenizers.train(kind, PROSE, {"unigram": 200}.get(kind, 500), True)
    sentences = ["the 鱼鱼 fox", "龍 x", "\x01", "fox", "龍" * 3]
    assert count_lost(sentences, tokenizer)["unknown_characters"] == 6


def test_a_sample_of_a_large_text_has_its_shares():
    """Every tenth sentence is of another script; a regular sample could have all of them, or none."""
    tokenizer = tokenizers.train("wordpiece", PROSE, 500, True)
    sentences = (["the brown fox"] * 9 + ["ก" * 101]) * 2000
    counts = count_lost(sentences, tokenizer)
    # A block counts by its size, not by that of its sample.
    assert counts["characters"] == pytest.approx(len("".join(sentences)), rel=0.1)
    assert counts["unknown_characters"] / counts["characters"] == pytest.approx(0.5, abs=0.15)


def test_a_space_in_front_of_a_part_is_no_loss():
    """A tokenizer that adds one does not tell whether a text has one: parts of a text begin anywhere."""
    tokenizer = tokenizers.train("byte_bpe", PROSE, 300, False)
    parts = ["the cat", " the cat", "  the cat"]
    assert tokenizer.adds_space
    assert count_lost(parts, tokenizer, True)["altered_characters"] == 0
    lowered = tokenizers.train("byte_bpe", PROSE, 300, True)
    assert count_lost([*parts, " The cat"], lowered, True)["altered_characters"] == len(" The cat")
