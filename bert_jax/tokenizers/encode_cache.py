"""Ids of many texts at once, as arrays: `encode(texts) -> int32[T], int64[len(texts)]`.

The first array holds the ids of the texts, one after the other, the second where each text ends.
"""

import re
from collections.abc import Callable
from itertools import chain

import numpy as np

Encode = Callable[[list[str]], list[list[int]]]


def flatten(lists: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
    """int32[T] ids of the lists, one after the other; int64[len(lists)] where each ends."""
    ends = np.cumsum(np.fromiter(map(len, lists), np.int64, len(lists)))
    total = int(ends[-1]) if len(ends) else 0
    return np.fromiter(chain.from_iterable(lists), np.int32, total), ends


class Direct:
    """Whatever the library does."""

    def __init__(self, encode: Encode):
        self.by_library = encode

    def encode(self, texts: list[str]) -> tuple[np.ndarray, np.ndarray]:
        return flatten(self.by_library(texts))


class Units:
    """Remembers the ids of units already seen: several times as fast as the `tokenizers` library.

    pattern: finds the units of texts that "\\n" parts, and each "\\n"; the ids of a text must be those of its units,
    one after the other. limit and characters: what is remembered, about, before all is forgotten.
    """

    def __init__(
        self,
        pattern: re.Pattern,
        encode: Encode,
        limit: int = 1 << 19,
        characters: int = 1 << 24,
    ):
        self.pattern, self.by_library = pattern, encode
        self.limits = limit, characters
        self.clear()

    def clear(self) -> None:
        self.numbers = {"\n": 0}  # unit -> its place in the arrays below
        self.characters = 0
        self.lengths = np.zeros(1, np.int64)
        self.starts = np.zeros(1, np.int64)
        self.pieces = np.zeros(0, np.int32)

    def encode(self, texts: list[str]) -> tuple[np.ndarray, np.ndarray]:
        """int32[T] ids of the texts, one after the other; int64[len(texts)] where each text ends."""
        joined = "\n".join([*texts, ""])
        if joined.count("\n") != len(texts):
            return flatten(self.by_library(texts))
        units = self.pattern.findall(joined)
        self.learn(set(units))
        numbers = np.fromiter(map(self.numbers.__getitem__, units), np.int32, len(units))
        lengths = self.lengths[numbers]
        ends = np.cumsum(lengths)
        places = np.repeat(self.starts[numbers] - (ends - lengths), lengths)
        places += np.arange(len(places))
        return self.pieces[places], ends[numbers == 0]

    def learn(self, units: set[str]) -> None:
        if len(self.numbers) > self.limits[0] or self.characters > self.limits[1]:
            self.clear()
        new = list(units.difference(self.numbers))
        if not new:
            return
        flat, ends = flatten(self.by_library(new))
        starts = len(self.pieces) + np.concatenate([[0], ends[:-1]])
        self.numbers.update(
            zip(new, range(len(self.numbers), len(self.numbers) + len(new)), strict=True)
        )
        self.characters += sum(map(len, new))
        self.lengths = np.concatenate([self.lengths, np.diff(ends, prepend=0)])
        self.starts = np.concatenate([self.starts, starts])
        self.pieces = np.concatenate([self.pieces, flat])
