"""Packing: assigns the pairs of an epoch to rows, several pairs per row. Pure NumPy.

A pair's number is its place in a random order of the epoch. For WINDOW consecutive pairs at a time, longest first, each
pair goes into the row with the least sufficient room (best-fit decreasing). The result depends only on the lengths and
that order, so every epoch packs differently, and uses every pair once.

    index/train-512-...-rows8-epoch3.npy    uint32[R, S], the pairs of each row by their places in the index, then NONE

R rows, S pairs per row at most.
"""

from collections import defaultdict
from collections.abc import Iterator

import numpy as np

from bert_jax import prng
from bert_jax.data.row_index import Indexes
from bert_jax.data.store import Split
from bert_jax.tasks.text.documents import sequence_sizes
from bert_jax.tasks.text.pair_rows import Rules, purpose_key, unpack

# Pairs packed together. Each window reads the whole index of pairs, and takes 50 ms.
WINDOW = 1 << 18
NONE = np.uint32(2**32 - 1)  # marks an absent pair


def indexes(pairs: Indexes, split: Split, rules: Rules, sequences: int) -> Indexes:
    """Returns the index files of packed rows over those of pairs. sequences: S."""

    def build(epoch: int) -> Iterator[np.ndarray]:
        index = pairs.open(epoch)
        order = purpose_key(split, rules, epoch, "packed_order")
        for first in range(0, len(index), WINDOW):
            places = np.arange(first, min(first + WINDOW, len(index)))
            places = prng.shuffle(places, len(index), order)
            pair_sizes = sequence_sizes(unpack(index[places]), rules.special)
            packed = pack(pair_sizes, rules.length, sequences)
            packed_places = np.where(packed < 0, NONE, places[packed])
            yield packed_places.astype(np.uint32)

    return Indexes(pairs.directory, f"{pairs.name}-rows{sequences}", np.uint32, sequences, build)


def pack(lengths: np.ndarray, room: int, sequences: int) -> np.ndarray:
    """Packs items into rows: int64[N] lengths -> int64[R, S], the item numbers of each row, then -1.

    A row holds at most `room` tokens and `sequences` items. Items of equal length are placed together, so the loop runs
    a few hundred times, whatever the number of items.
    """
    packed = np.full((len(lengths), sequences), -1)
    filled = np.zeros(len(lengths), np.int64)
    number = 0  # of rows
    shelves = defaultdict(list)  # {free tokens: arrays of the rows with that much room}
    sizes, counts = np.unique(lengths, return_counts=True)
    longest_first = np.argsort(-lengths, kind="stable")
    groups = np.split(longest_first, np.cumsum(counts[::-1])[:-1])
    for size, items in zip(sizes[::-1].tolist(), groups, strict=True):
        while items.size:
            sufficient = [left for left in shelves if left >= size]
            if not sufficient:
                per_row = min(room // size, sequences)
                new = -(-items.size // per_row)
                shelves[room].append(np.arange(number, number + new))
                number += new
            left = min(sufficient, default=room)
            shelf = shelves[left].pop()
            rows = shelf[: items.size]
            unused = shelf[items.size :]
            packed[rows, filled[rows]] = items[: rows.size]
            filled[rows] += 1
            not_full = rows[filled[rows] < sequences]
            if unused.size:
                shelves[left].append(unused)
            if not_full.size:
                shelves[left - size].append(not_full)
            if not shelves[left]:
                del shelves[left]
            items = items[rows.size :]
    return packed[:number]
