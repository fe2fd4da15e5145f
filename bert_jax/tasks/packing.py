"""Packing: assigns the pairs of an epoch to rows, several pairs per row. Pure NumPy.

A pair's number is its place in a random order of the epoch. For WINDOW consecutive pairs at a time, longest first, each
pair goes into the row with the least sufficient room (best-fit decreasing). The result depends only on the lengths and
that order, so every epoch packs differently, and uses every pair once.

    index/train-512-...-packed8-epoch3.npy    uint32[R, S], the numbers of each row's pairs, then NONE

R rows, S pairs per row at most.
"""

from collections import defaultdict
from collections.abc import Iterator

import numpy as np

from bert_jax import prng
from bert_jax.data.row_index import Indexes
from bert_jax.tasks import pair_rows

# Pairs packed together. Each window reads the whole index of pairs, and takes 50 ms.
WINDOW = 1 << 18
NONE = np.uint32(2**32 - 1)  # marks an absent pair


def indexes(pairs: Indexes, split, rules: pair_rows.Rules, sequences: int) -> Indexes:
    """Returns the index files of packed rows over those of pairs."""

    def parts(epoch: int) -> Iterator[np.ndarray]:
        return build(pairs.open(epoch), split, rules, sequences, epoch)

    return Indexes(pairs.directory, f"{pairs.name}-packed{sequences}", np.uint32, sequences, parts)


def lengths(rows: pair_rows.Rows, rules: pair_rows.Rules) -> np.ndarray:
    """Returns int64[...]: the tokens of each pair with [CLS] and [SEP]; 0 for an absent pair."""
    real = rows.a_length + rows.b_length
    return np.where(real, real + pair_rows.count_special_tokens(rules.pair_task), 0)


def build(
    pairs: np.ndarray, split, rules: pair_rows.Rules, sequences: int, epoch: int
) -> Iterator[np.ndarray]:
    """Yields the packed rows of an epoch, in parts uint32[r, S]. pairs: the index of its pairs."""
    order = pair_rows.purpose_key(split, rules, epoch, "packed_order")
    for first in range(0, len(pairs), WINDOW):
        numbers = np.arange(first, min(first + WINDOW, len(pairs)))
        chosen = pair_rows.unpack(pairs[prng.shuffle(numbers, len(pairs), order)])
        packed = pack(lengths(chosen, rules), rules.length, sequences)
        yield np.where(packed < 0, NONE, packed + first).astype(np.uint32)


def pack(lengths: np.ndarray, room: int, sequences: int) -> np.ndarray:
    """Packs items into rows: int64[N] lengths -> int64[R, S], the item numbers of each row, then -1.

    A row holds at most `room` tokens and `sequences` items. Items of equal length are placed together, so the loop runs
    a few hundred times, whatever the number of items.
    """
    packed = np.full((len(lengths), sequences), -1)
    filled, number = np.zeros(len(lengths), np.int64), 0
    shelves = defaultdict(list)  # {free tokens: arrays of the rows with that much room}
    sizes, counts = np.unique(lengths, return_counts=True)
    longest_first = np.argsort(-lengths, kind="stable")
    groups = np.split(longest_first, np.cumsum(counts[::-1])[:-1])
    for size, items in zip(sizes[::-1].tolist(), groups, strict=True):
        while items.size:
            left = min((left for left in shelves if left >= size), default=None)
            if left is None:
                left, new = room, -(-items.size // min(room // size, sequences))
                shelves[left].append(np.arange(number, number + new))
                number += new
            shelf = shelves[left].pop()
            rows = shelf[: items.size]
            packed[rows, filled[rows]] = items[: rows.size]
            filled[rows] += 1
            not_full = rows[filled[rows] < sequences]
            for space, leftover in ((left, shelf[items.size :]), (left - size, not_full)):
                if leftover.size:
                    shelves[space].append(leftover)
            if not shelves[left]:
                del shelves[left]
            items = items[rows.size :]
    return packed[:number]
