"""Packing: assigns the pairs of an epoch to rows, several pairs per row. Pure NumPy.

A pair's number is its place in the epoch's random order, as without packing. For WINDOW consecutive pairs at a time,
longest first, each pair goes into the row with the least sufficient room (best-fit decreasing). The result depends only
on the lengths and that order, so every epoch packs differently, and uses every pair once.

    index/train-512-...-packed8-epoch3.npy    uint32[R, S], the numbers of each row's pairs, then NONE

R rows, S pairs per row at most.
"""

from collections import defaultdict
from collections.abc import Iterator
from functools import partial

import numpy as np

from bert_jax import prng
from bert_jax.data.row_index import Indexes
from bert_jax.tasks import sentence_pairs

# Pairs packed together. Each window reads the whole index of pairs, and takes 50 ms.
WINDOW = 1 << 18
NONE = np.uint32(2**32 - 1)  # marks an absent pair


def packed_indexes(pairs: Indexes, split, rules: sentence_pairs.Rules, sequences: int) -> Indexes:
    """Returns the indexes of packed rows over the indexes of pairs."""
    name, parts = f"{pairs.name}-packed{sequences}", partial(build, pairs, split, rules, sequences)
    return Indexes(pairs.directory, name, np.uint32, sequences, parts)


def lengths(rows: sentence_pairs.Rows, rules: sentence_pairs.Rules) -> np.ndarray:
    """Returns int64[...]: the tokens of each pair with [CLS] and [SEP]; 0 for an absent pair."""
    real = rows.a_length + rows.b_length
    return np.where(real, real + sentence_pairs.count_special_tokens(rules.pair_task), 0)


def build(
    indexes: Indexes, split, rules: sentence_pairs.Rules, sequences: int, epoch: int
) -> Iterator[np.ndarray]:
    """Yields the packed rows of an epoch, in parts uint32[r, S]."""
    pairs, order = indexes.open(epoch), sentence_pairs.purpose_key(split, rules, epoch, "order")
    for first in range(0, len(pairs), WINDOW):
        numbers = np.arange(first, min(first + WINDOW, len(pairs)))
        chosen = sentence_pairs.unpack(pairs[prng.shuffle(numbers, len(pairs), order)])
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
