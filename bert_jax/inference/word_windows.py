"""Windows of text with the same words masked in several vocabularies, and what a model makes of them. W masked words.

A word is a run of letters, digits, "_" and combining marks. It is tokenized by itself, and so is the text between two
words. All pieces of a chosen word are masked, so the number of [MASK]s reveals how many pieces a word has.
"""

import math
import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import chain, islice
from typing import NamedTuple

import numpy as np

from bert_jax import prng
from bert_jax.inference import fill_mask, table
from bert_jax.inference.words import part_pattern

RATE = 0.15  # share of the words that are chosen


class Window(NamedTuple):
    """A window of a document, split into parts: words, and the text between them without white space."""

    document: int
    parts: list[str]
    pieces: list[list[list[int]]]  # [part][vocabulary][ids]
    chosen: list[int]  # indices of the parts that are masked


def windows(documents: Iterable[list[str]], tokenizers: list, limit: int) -> Iterator[Window]:
    """Yields the windows of documents (lists of sentences), with at most `limit` pieces in every vocabulary.

    Skips parts with more pieces.
    """

    @lru_cache(1 << 18)
    def encode(part: str, is_glued: bool) -> list[list[int]]:
        return [tokenizer.encode_part(part, is_glued) for tokenizer in tokenizers]

    for document, sentences in enumerate(documents):
        window = Window(document, [], [], [])
        sizes = 0
        text = f" {' '.join(sentences)}"
        for match in part_pattern().finditer(text):
            pieces = encode(match[0], not text[match.start() - 1].isspace())
            part_sizes = np.array([*map(len, pieces)])
            if part_sizes.max() > limit:
                continue
            if max(sizes + part_sizes) > limit:
                yield window
                window = Window(document, [], [], [])
                sizes = 0
            window.parts.append(match[0])
            window.pieces.append(pieces)
            sizes = sizes + part_sizes
        if window.parts:
            yield window


def draw_words(seed: int, window: int, parts: list[str]) -> list[int]:
    """Returns the indices of a random share RATE of the words of a window."""
    key = np.full(len(parts), prng.key(seed, prng.PURPOSE["words"], window))
    bits = prng.fold(key, np.arange(len(parts), dtype=np.uint32))
    drawn = np.flatnonzero(bits < RATE * 2**32).tolist()
    return [index for index in drawn if re.match(r"\w", parts[index])]


def choose_words(
    documents: Iterable[list[str]],
    tokenizers: list,
    limit: int,
    seed: int,
    number: int,
) -> tuple[list[Window], np.ndarray]:
    """Returns the first `number` windows with their chosen words, and how many of the drawn words each vocabulary does
    not know. A word that one of the vocabularies does not know is not chosen."""
    first_windows = [*islice(windows(documents, tokenizers, limit), number)]
    unknown = np.zeros(len(tokenizers), np.int64)
    for index, window in enumerate(first_windows):
        for word in draw_words(seed, index, window.parts):
            pairs = zip(window.pieces[word], tokenizers, strict=True)
            is_unknown = np.array([not ids or tokenizer.unk in ids for ids, tokenizer in pairs])
            unknown += is_unknown
            if not is_unknown.any():
                window.chosen.append(word)
    return first_windows, unknown


def summary(windows: list[Window]) -> dict:
    """Returns the numbers of words, windows, documents and characters of the chosen words."""
    words = [window.parts[index] for window in windows for index in window.chosen]
    return {
        "words": len(words),
        "windows": len(windows),
        "documents": len({window.document for window in windows}),
        "characters": sum(map(len, words)),
    }


def score(model, windows: list[Window], number: int) -> tuple[np.ndarray, ...]:
    """Returns of each word: float64[W] nats, bool[W] whether it is correct, int64[W] number of pieces; and the ids of
    all pieces.

    number: the index of the model's vocabulary in the windows.
    """
    rows = []
    targets = []
    sizes = []
    for window in windows:
        pieces = [ids[number] for ids in window.pieces]
        words = [pieces[index] for index in window.chosen]
        for index in window.chosen:
            pieces[index] = [model.vocabulary.mask] * len(pieces[index])
        rows.append([model.frame.wrap(chain(*pieces))])
        targets.append([*chain(*words)])
        sizes += map(len, words)
    measured = fill_mask.measure(model, targets, rows)
    nats, _, pieces = map(np.concatenate, zip(*measured, strict=True))
    targets = [*chain(*targets)]
    starts = np.cumsum(sizes) - sizes
    word_nats = np.add.reduceat(nats.astype(np.float64), starts)
    is_correct = np.logical_and.reduceat(pieces[:, 0] == targets, starts)
    return word_nats, is_correct, np.array(sizes), targets


def evaluate(model, windows: list[Window], number: int, characters: int) -> dict[str, float]:
    """Returns means over the words: nats_per_word, unigram_nats_per_word, accuracy, pieces_per_word; and
    bits_per_character.

    The second one is by the frequencies of pieces, plus one, in the text that the model was trained on; NaN if they are
    not known.

    characters: of all words. For the other arguments see `score`.
    """
    nats, correct, pieces, ids = score(model, windows, number)
    unigram_nats = math.nan
    if model.unigrams is not None:
        counts = model.unigrams + 1
        unigram_nats = float(np.log(counts.sum() / counts)[ids].sum() / len(nats))
    return {
        "nats_per_word": float(nats.mean()),
        "unigram_nats_per_word": unigram_nats,
        "accuracy": float(correct.mean()),
        "pieces_per_word": float(pieces.mean()),
        "bits_per_character": float(nats.sum() / math.log(2) / characters),
    }


def describe(values: dict) -> str:
    """Returns a table as text, one line for each model. values: those of `summary`, and `models`, see table.py."""
    header = (
        f"{values['words']:,} words ({values['characters']:,} characters) masked in"
        f" {values['windows']:,} windows of {values['documents']:,} documents"
    )
    return "\n".join([header, *table.lines(values["models"])])
