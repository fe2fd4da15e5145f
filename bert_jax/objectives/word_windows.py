"""Windows of text with the same words masked in several vocabularies.

A word is a run of letters, digits and "_". It is tokenized by itself, and so is the text between two words. All pieces
of a chosen word are masked, so the number of [MASK]s reveals how many pieces a word has.
"""

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import chain
from typing import NamedTuple

import numpy as np

from bert_jax import prng

RATE = 0.15  # share of the words that are chosen
PART = re.compile(r"\w+|[^\w\s]+")


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
    cut = lru_cache(1 << 18)(lambda part, glued: [t.encode_part(part, glued) for t in tokenizers])
    for document, sentences in enumerate(documents):
        window, sizes = Window(document, [], [], []), 0
        text = f" {' '.join(sentences)}"
        for match in PART.finditer(text):
            pieces = cut(match[0], not text[match.start() - 1].isspace())
            more = np.array([len(ids) for ids in pieces])
            if more.max() > limit:
                continue
            if max(sizes + more) > limit:
                yield window
                window, sizes = Window(document, [], [], []), 0
            window.parts.append(match[0])
            window.pieces.append(pieces)
            sizes = sizes + more
        if window.parts:
            yield window


def choose(seed: int, window: int, parts: list[str]) -> list[int]:
    """Returns the indices of a random share RATE of the words of a window."""
    key = np.full(len(parts), prng.key(seed, prng.PURPOSE["words"], window))
    bits = prng.fold(key, np.arange(len(parts), dtype=np.uint32))
    drawn = np.flatnonzero(bits < RATE * 2**32).tolist()
    return [index for index in drawn if re.match(r"\w", parts[index])]


def mask(window: Window, number: int, id: int) -> list[int]:
    """Returns the ids of a window, with the id of [MASK] for every piece of a chosen word."""
    cuts = [ids[number] for ids in window.pieces]
    for index in window.chosen:
        cuts[index] = [id] * len(cuts[index])
    return [*chain(*cuts)]
