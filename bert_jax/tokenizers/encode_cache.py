"""A cache for encoding corpora: looks up words encoded before instead of calling the library."""

import re
from collections.abc import Callable
from itertools import chain, count

import numpy as np

# The cache is cleared at LIMIT units, 8 LIMIT pieces or 32 LIMIT characters, whichever comes first.
LIMIT = 1 << 19


class CachedEncoder:
    """An encoder of corpora with a cache of the ids of units (words), several times as fast as the library.

    encode: the library's function (texts) -> ids of each text. pattern: matches the units of a text, and each "\\n"
    between texts; the ids of a text must be those of its units, concatenated. None if the tokenizer has no such units;
    then nothing is cached.
    """

    def __init__(
        self, encode: Callable[[list[str]], list[list[int]]], pattern: re.Pattern | None = None
    ):
        self.encode_uncached, self.pattern = encode, pattern
        self.clear()

    def clear(self) -> None:
        """Empties the cache."""
        # Unit number n has the pieces from bounds[n] to bounds[n + 1]; unit 0 is the line break, without pieces.
        self.numbers, self.bounds = {"\n": 0}, np.zeros(2, np.int64)
        self.pieces = np.zeros(0, np.int32)
        self.characters = 0  # total length of the cached units

    def encode(self, texts: list[str]) -> tuple[np.ndarray, np.ndarray]:
        """Returns int32[T], the concatenated ids of the texts, and int64[len(texts)], where each text ends."""
        joined = "\n".join([*texts, ""])
        if self.pattern is None or joined.count("\n") != len(texts):
            return flatten(self.encode_uncached(texts))
        units = self.pattern.findall(joined)
        self.learn(set(units))
        numbers = np.fromiter(map(self.numbers.__getitem__, units), np.int32, len(units))
        starts = self.bounds[numbers]
        lengths = self.bounds[numbers + 1] - starts
        ends = np.cumsum(lengths)
        indexes = np.repeat(starts - (ends - lengths), lengths)
        indexes += np.arange(len(indexes))
        return self.pieces[indexes], ends[numbers == 0]

    def learn(self, units: set[str]) -> None:
        """Encodes new units and adds them to the cache; clears it first if it is full."""
        if max(len(self.numbers), len(self.pieces) / 8, self.characters / 32) > LIMIT:
            self.clear()
        new = list(units.difference(self.numbers))
        pieces, ends = flatten(self.encode_uncached(new))
        self.characters += sum(map(len, new))
        self.numbers.update(zip(new, count(len(self.numbers)), strict=False))
        self.bounds = np.concatenate([self.bounds, len(self.pieces) + ends])
        self.pieces = np.concatenate([self.pieces, pieces])


def flatten(lists: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
    """Returns int32[T], the concatenated lists, and int64[len(lists)], where each list ends."""
    lengths = np.fromiter(map(len, lists), np.int64, len(lists))
    ids = np.fromiter(chain.from_iterable(lists), np.int32, lengths.sum())
    return ids, np.cumsum(lengths)
