"""Encodes whole corpora: documents are encoded whole, and sentences end at token ends.

A document is a list of sentences, stripped strings without line breaks. Its ids are those of its sentences joined by
single spaces. Each function below returns int32[T], the ids of all documents, and int64[S], the number of ids up to the
end of each sentence.
"""

from collections.abc import Callable
from itertools import chain, count, filterfalse

import numpy as np

# The cache is cleared at LIMIT units, 8 LIMIT pieces or 32 LIMIT characters, whichever comes first.
LIMIT = 1 << 19


class CachedEncoder:
    """Encodes documents with a cache of the ids of units (words), many times as fast as the library.

    The ids of a text must be those of its units, concatenated, and a unit must begin at a space between two sentences
    or after it.

    encode: (units) -> int32[T], the ids of all units, and int64[len(units)], where those of each end.
    split: (text) -> list of its distinct units, of which each "\n" is one, and int32[N], which of them its units are.
    """

    def __init__(self, encode: Callable, split: Callable):
        self.encode = encode
        self.split = split
        self.clear()

    def clear(self) -> None:
        """Empties the cache."""
        # Unit number n has the pieces from bounds[n] to bounds[n + 1]; unit 0 is the line break, without pieces.
        self.numbers = {"\n": 0}
        self.bounds = np.zeros(2, np.int64)
        self.pieces = np.zeros(0, np.int32)
        self.characters = 0  # total length of the cached units

    def __call__(self, documents: list[list[str]]) -> tuple[np.ndarray, np.ndarray]:
        # A line break marks the end of each sentence; the space between two sentences follows it.
        joined = "".join("\n ".join(document) + "\n" for document in documents if document)
        units, places = self.split(joined)
        self.learn(units)
        numbers = np.fromiter(map(self.numbers.__getitem__, units), np.int32, len(units))[places]
        starts = self.bounds[numbers]
        lengths = self.bounds[numbers + 1] - starts
        ends = np.cumsum(lengths)
        indexes = np.repeat(starts - (ends - lengths), lengths)
        indexes += np.arange(len(indexes))
        return self.pieces[indexes], ends[numbers == 0]

    def learn(self, units: list[str]) -> None:
        """Encodes new units and adds them to the cache; clears it first if it is full."""
        if max(len(self.numbers), len(self.pieces) / 8, self.characters / 32) > LIMIT:
            self.clear()
        new = list(filterfalse(self.numbers.__contains__, units))
        pieces, ends = self.encode(new)
        self.characters += sum(map(len, new))
        self.numbers.update(zip(new, count(len(self.numbers)), strict=False))
        self.bounds = np.concatenate([self.bounds, len(self.pieces) + ends])
        self.pieces = np.concatenate([self.pieces, pieces])


def encode_documents(encode: Callable, documents: list[list[str]]) -> tuple[np.ndarray, np.ndarray]:
    """Encodes documents with any library. A sentence ends at the token end that is nearest to its last character.

    encode: (texts) -> for each text its ids, and where each token begins and ends in characters.
    """
    ids = []
    ends = []
    documents = [document for document in documents if document]
    encoded = encode([" ".join(document) for document in documents])
    for document, (tokens, offsets) in zip(documents, encoded, strict=True):
        stops = np.maximum.accumulate([0, *(stop for _, stop in offsets)])
        lengths = [len(sentence) + 1 for sentence in document]
        targets = np.cumsum(lengths) - 1
        before = stops[np.searchsorted(stops, targets, "right") - 1]
        after = stops[np.searchsorted(stops, np.minimum(targets, stops[-1]))]
        nearest = np.where(after - targets < targets - before, after, before)
        numbers = np.searchsorted(stops, nearest, "right") - 1
        ends += (len(ids) + numbers).tolist()
        ids += tokens
        ends[-1] = len(ids)
    return np.array(ids, np.int32), np.array(ends, np.int64)


def flatten(lists: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
    """Returns int32[T], the concatenated lists, and int64[len(lists)], where each list ends."""
    lengths = np.fromiter(map(len, lists), np.int64, len(lists))
    ids = np.fromiter(chain.from_iterable(lists), np.int32, lengths.sum())
    return ids, np.cumsum(lengths)
