"""Several pairs in one row: which pairs of an epoch go together.

Pairs are known by their numbers in the epoch's random order, as in a run that packs nothing. WINDOW of
them at a time, the longest first, each goes into the row with the least room that is enough for it
(best fit). Only lengths and that order decide, so what goes together is new in every epoch, and every
pair is used once. NumPy, pure.

    index/train-512-...-packed8-epoch3.npy    uint32[R, S], the numbers of each row's pairs, NONE behind them

S pairs a row, at most.
"""

from collections import defaultdict
from collections.abc import Iterator
from functools import partial

import numpy as np

from bert_jax import prng
from bert_jax.data import sentence_pairs
from bert_jax.data.row_index import Indexes

WINDOW = 1 << 18  # pairs; a pass through the index of pairs each, and 50 ms
NONE = np.uint32(2**32 - 1)  # where a row has no pair


def of_packed(pairs: Indexes, split, rules: sentence_pairs.Rules, sequences: int) -> Indexes:
    """The files that say which pairs of these go together."""
    name, parts = f"{pairs.name}-packed{sequences}", partial(build, pairs, split, rules, sequences)
    return Indexes(pairs.place, name, np.uint32, sequences, parts)


def lengths(rows: sentence_pairs.Rows, rules: sentence_pairs.Rules) -> np.ndarray:
    """int64[...]: tokens of pairs, with [CLS] and [SEP]; 0 of zeros."""
    real = rows.a_length + rows.b_length
    return np.where(real, real + sentence_pairs.special_pieces(rules.pair_task), 0)


def build(
    indexes: Indexes, split, rules: sentence_pairs.Rules, sequences: int, epoch: int
) -> Iterator[np.ndarray]:
    """The packed rows of an epoch, in parts uint32[r, S]."""
    pairs, order = indexes.open(epoch), sentence_pairs.purpose_key(split, rules, epoch, "order")
    for first in range(0, len(pairs), WINDOW):
        numbers = np.arange(first, min(first + WINDOW, len(pairs)))
        chosen = sentence_pairs.unpack(pairs[prng.shuffle(numbers, len(pairs), order)])
        packed = pack(lengths(chosen, rules), rules.length, sequences)
        yield np.where(packed < 0, NONE, packed + first).astype(np.uint32)


def pack(lengths: np.ndarray, room: int, sequences: int) -> np.ndarray:
    """int64[N] tokens -> int64[R, S]: which of them go into each row of `room` tokens, -1 behind them.

    All pairs of one length at a time: a few hundred steps, however many pairs there are.
    """
    made = np.full((len(lengths), sequences), -1)
    held, number = np.zeros(len(lengths), np.int64), 0
    shelves = defaultdict(list)  # {tokens left: arrays of the rows that have so much room}
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
            made[rows, held[rows]] = items[: rows.size]
            held[rows] += 1
            not_full = rows[held[rows] < sequences]
            for space, some in ((left, shelf[items.size :]), (left - size, not_full)):
                if some.size:
                    shelves[space].append(some)
            if not shelves[left]:
                del shelves[left]
            items = items[rows.size :]
    return made[:number]
