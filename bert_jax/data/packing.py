"""Several pairs in one row: which pairs of an epoch go together.

Pairs are known by their numbers in the epoch's random order, as in a run that packs nothing. WINDOW of
them at a time, the longest first, each goes into the row with the least room that is enough for it
(best fit). Only lengths and that order decide, so what goes together is new in every epoch, and every
pair is used once. NumPy, pure.

    index/train-512-nsp-...-v3-packed8-epoch3.npy    uint32[R, S], the numbers of each row's pairs, NONE behind them

S pairs a row, at most.
"""

from bisect import bisect_left, insort
from collections.abc import Iterator

import numpy as np

from bert_jax import prng
from bert_jax.data import row_index, sentence_pairs
from bert_jax.data.row_index import Indexes

WINDOW = 1 << 18  # pairs; a pass through the index of pairs each, and 30 ms
NONE = np.uint32(2**32 - 1)  # where a row has no pair


def of_packed(pairs: Indexes, split, rules: sentence_pairs.Rules, sequences: int) -> Indexes:
    """The files that say which pairs of these go together."""

    def parts(epoch, cancelled):
        opened = pairs.open(epoch, cancelled)
        return build(opened, split, rules, epoch, sequences, cancelled)

    name = f"{pairs.name}-packed{sequences}"
    return Indexes(pairs.directory, name, np.uint32, sequences, parts)


def lengths(pairs: np.ndarray, rules: sentence_pairs.Rules) -> np.ndarray:
    """int64[..., 3] -> int64[...]: tokens of pairs, with [CLS] and [SEP]; 0 of zeros."""
    pair = sentence_pairs.unpack(pairs)
    real = pair.a_length + pair.b_length
    return np.where(real, real + sentence_pairs.special_pieces(rules.pairs), 0)


def build(
    pairs: np.ndarray, split, rules: sentence_pairs.Rules, epoch: int, sequences: int, cancelled
) -> Iterator[np.ndarray]:
    """The packed rows of an epoch, in parts uint32[r, S]; ends early once `cancelled`."""
    order = sentence_pairs.purpose_key(split, rules, epoch, "order")
    for first in range(0, len(pairs), WINDOW):
        if cancelled():
            return
        numbers = np.arange(first, min(first + WINDOW, len(pairs)))
        chosen = pairs[prng.shuffle(numbers, len(pairs), order)]
        sizes = lengths(chosen, rules)
        row_index.check(pairs, sizes.max() <= rules.length)
        packed = pack(sizes, rules.length, sequences)
        yield np.where(packed < 0, NONE, packed + first).astype(np.uint32)


def pack(lengths: np.ndarray, room: int, sequences: int) -> np.ndarray:
    """int64[N] tokens -> int64[R, S]: which of them go into each row of `room` tokens, -1 behind them.

    All pairs of one length at a time: a few hundred steps, however many pairs there are.
    """
    made = np.full((len(lengths), sequences), -1)
    held, number, shelves = np.zeros(len(lengths), np.int64), 0, Shelves()
    waiting = np.argsort(-lengths, kind="stable")
    sizes, counts = np.unique(lengths, return_counts=True)
    groups = np.split(waiting, np.cumsum(counts[::-1])[:-1])
    for size, items in zip(sizes[::-1].tolist(), groups, strict=True):
        while items.size:
            if shelves.most() < size:
                new = -(-items.size // min(room // size, sequences))
                shelves.put(room, np.arange(number, number + new))
                number += new
            left, taken = shelves.take(size, items.size)
            made[taken, held[taken]] = items[: taken.size]
            held[taken] += 1
            shelves.put(left - size, taken[held[taken] < sequences])
            items = items[taken.size :]
    return made[:number]


class Shelves:
    """Rows that are not full, by the tokens that they have room for."""

    def __init__(self):
        self.rows, self.rooms = {}, []

    def most(self) -> int:
        """The most room that there is."""
        return self.rooms[-1] if self.rooms else -1

    def put(self, room: int, rows_: np.ndarray) -> None:
        if not rows_.size:
            return
        if room not in self.rows:
            self.rows[room] = []
            insort(self.rooms, room)
        self.rows[room].append(rows_)

    def take(self, least: int, number: int) -> tuple[int, np.ndarray]:
        """(room, rows): up to `number` of those with the least room that is enough."""
        place = bisect_left(self.rooms, least)
        room = self.rooms[place]
        rows_ = self.rows[room].pop()
        if len(rows_) > number:
            self.rows[room].append(rows_[number:])
        if not self.rows[room]:
            del self.rows[room], self.rooms[place]
        return room, rows_[:number]
