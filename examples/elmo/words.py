"""Rows of words with their characters, from a store of WordPiece.

The pieces of a word are put together again. A word that is one piece is a target; one of several is [UNK] as a target,
but is read by its characters. A word with a letter that the vocabulary lacks is read as "[UNK]". Documents are one
after the other, each between [CLS] and [SEP]; neither direction predicts where another document begins. Rows are those
of token_blocks, in words: in training they are full, and held-out ones are windows that overlap by a word, so that each
word is predicted once from each side. A batch has

    characters          int32[B, L, M]    see characters.py; 0 in the padding
    next_weights        float32[B, L]     whether the word after this one counts
    previous_weights    float32[B, L]     whether the word before this one counts

B rows, L length in words, M characters of a word, W words of a split, V pieces.
"""

from functools import cache
from typing import NamedTuple

import numpy as np
from elmo import characters

from bert_jax.checks import require
from bert_jax.data import batch, mixture
from bert_jax.data.dataset import Dataset, draw_key
from bert_jax.data.store import SPLITS, Split, number_of
from bert_jax.tasks.text import documents, token_blocks

DEFAULTS = {
    "characters": 50,  # of a word, two marks included; longer words are cut
    **mixture.DEFAULTS,
}
PHASE_DEFAULTS = mixture.PHASE_DEFAULTS
NEEDS = "unk cls sep"
MARKS = 2  # between two documents: [SEP] and [CLS]


def check(config):
    token_blocks.check(config)
    require(config.task.characters >= 8, "task.characters", config, "expected at least 8")


class Pieces(NamedTuple):
    """The pieces of a vocabulary."""

    texts: list[str]  # without the sign that continues a word
    begins_word: np.ndarray  # bool[V]
    special: dict[str, int]


def read_pieces(config, store) -> Pieces:
    """Returns the pieces of a store. Raises BadInput unless they are those of WordPiece, which are parts of words."""
    tokenizer = store.tokenizer
    hint = "expected wordpiece, or a vocab.txt as tokenizer.path"
    require(tokenizer.kind == "wordpiece", "tokenizer.kind", config, hint)
    texts = [piece.removeprefix(tokenizer.continues) for piece in tokenizer.pieces]
    return Pieces(texts, tokenizer.word_starts, tokenizer.special)


def in_words(split: Split, begins_word: np.ndarray) -> Split:
    """Returns a split whose tokens are words: the place of the first piece of each, int64[W], and whose sentences end
    in words."""
    firsts = np.flatnonzero(begins_word[split.tokens])
    ends = np.searchsorted(firsts, split.sentence_ends)
    return split._replace(tokens=firsts, sentence_ends=ends)


def make(config, store=None) -> Dataset:
    """Returns the dataset of a store; see tasks/base.py."""
    size = config.task.characters

    @cache
    def pieces() -> Pieces:
        return read_pieces(config, store)

    @cache
    def words(split: str) -> Split:
        return in_words(store.splits[split], pieces().begins_word)

    if store:
        token_blocks.require_text(config, *documents.stream_range(words(SPLITS[0]), MARKS))

    def shapes(phase, rows: int) -> dict:
        shape = rows, phase.length
        arrays = {"characters": (*shape, size), "next_weights previous_weights": shape}
        return batch.shapes(*shape) | batch.structs(arrays)

    def rows(phase, split: str, epoch: int) -> documents.Rows:
        begin, end = documents.stream_range(words(split), MARKS)
        if number_of(split):
            return token_blocks.windows(begin, np.array([end]), phase.length)
        key = draw_key(config.seed, "cuts", 0, phase.text, epoch)
        return token_blocks.full_blocks(begin, end, phase.length, key)

    def make_batch(phase, split: str, rows, keys) -> dict:
        from elmo import stream  # imports TensorFlow

        part = words(split)
        path = store.splits[split].path / "tokens.npy"
        separators = documents.separators(part, MARKS)
        source = stream.Stream(path, part.tokens, separators, pieces())
        return source.gather(rows, phase.length, size)

    return Dataset(
        shapes=shapes,
        rows=rows,
        make=make_batch,
        sequences=lambda phase: 1,
        ranges=lambda vocabulary: {"characters": characters.SIZE},
        **mixture.fields(config, store),
    )
