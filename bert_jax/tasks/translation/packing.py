"""Packing: which pairs of texts share a row. Pure NumPy.

The pairs of an epoch are taken in a random order, WINDOW at a time. Each goes into the first row of its window that has
room for its source and its target (first-fit). So every epoch packs differently. It takes ten microseconds a pair.

N pairs, R rows, S pairs of a row at most.
"""

import numpy as np

from bert_jax import prng

WINDOW = 2048  # a larger one leaves fewer places empty, and takes longer


def pack(sizes: np.ndarray, rows: np.ndarray, key: np.ndarray) -> np.ndarray:
    """Returns int32[R, S], the numbers of the pairs of each row, then -1.

    sizes: int64[N, 2], the places that source and target of each pair take.
    rows: int64[3], the places of a row for sources and for targets, and S; each row has room for any pair.
    key: uint32[1], of the order.
    """
    count = len(sizes)
    order = prng.shuffle(np.arange(count), count, key)
    parts = []
    for pairs in np.split(order, range(WINDOW, count, WINDOW)):
        packed = fill(sizes[pairs], rows)
        parts.append(np.where(packed < 0, -1, pairs[packed]).astype(np.int32))
    return np.concatenate(parts)


def fill(sizes: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Packs pairs in their order: int64[N, 2] -> int64[R, S], their numbers in each row, then -1."""
    needed = np.pad(sizes, [(0, 0), (0, 1)], constant_values=1)
    room = np.tile(rows, (len(sizes), 1))
    packed = np.full((len(sizes), rows[-1]), -1)
    number = 0  # of rows that are in use
    for pair, size in enumerate(needed):
        has_room = (room[: number + 1] >= size).all(axis=1)
        row = int(has_room.argmax())
        packed[row, rows[-1] - room[row, -1]] = pair
        room[row] -= size
        number = max(number, row + 1)
    return packed[:number]
