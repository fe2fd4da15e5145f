"""Assembles rows of token ids from ranges of a split's tokens, as TensorFlow operations.

B rows, L length, N positions, S pairs per row at most, one after the other.
"""

import mmap
import sys
from pathlib import Path

import numpy as np
import tensorflow as tf

# Python defines mmap.MAP_NORESERVE from version 3.13 on.
NORESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000 if sys.platform == "linux" else 0)


def map_file(path: Path) -> tf.Tensor:
    """Maps a .npy file as a tensor, without a copy. The file may be larger than memory: only the page cache holds it.

    May be called while a graph is traced. TensorFlow requires writable memory. Unlike `np.load(path, mmap_mode="c")`,
    this reserves no swap space for it; that would fail on a machine with less memory than the file has.
    """
    array = np.load(path, mmap_mode="r")
    flags = mmap.MAP_PRIVATE | NORESERVE
    access = mmap.PROT_READ | mmap.PROT_WRITE
    with open(path, "rb") as file:
        pages = mmap.mmap(file.fileno(), 0, flags=flags, prot=access)
    array = np.ndarray(array.shape, array.dtype, pages, array.offset)
    with tf.init_scope():
        return tf.experimental.dlpack.from_dlpack(array.__dlpack__())


def gather(tokens, pairs, length: int, special: dict, paired: bool) -> dict[str, tf.Tensor]:
    """Returns rows before masking: [CLS] A [SEP] B [SEP] for each pair, or [CLS] A [SEP], one pair after the other.

    Besides arrays of the batch contract, it returns inputs of masking.apply: ends, int32[B, S], where each pair ends;
    sizes, int32[B, S], the number of tokens of A and B together; maskable, bool[B, L], tokens of A or B; begins,
    bool[B, L], the first token of A and of B.

    tokens: all of the split.
    pairs: int64[B, S, 5], with the columns of dataset.py; zeros for an absent pair.
    special: {name: id}.
    paired: whether rows have B.
    """
    a_start, a_length, b_start, b_length, label = tf.unstack(pairs, axis=2)
    used = a_length > 0
    lengths = a_length + b_length + (3 if paired else 2)
    ends = tf.cumsum(tf.where(used, lengths, 0), axis=1)
    starts = exclusive(ends)
    first_seps = starts + 1 + a_length
    position = tf.range(length, dtype=tf.int64)[None, :]
    owner = owners(ends, position)
    before_a = a_start - starts - 1
    before_b = b_start - first_seps - 1
    values = tf.stack([starts, first_seps, ends - 1, before_a, before_b], axis=2)
    start, first_sep, last_sep, before_a, before_b = tf.unstack(of_pair(values, owner), axis=2)
    in_a = (position > start) & (position < first_sep)
    in_b = (position > first_sep) & (position < last_sep)
    source = tf.where(in_a, before_a, before_b) + position
    ids = tf.cast(tf.gather(tokens, tf.where(in_a | in_b, source, 0)), tf.int32)
    separator = (position == first_sep) | (position == last_sep)
    around = tf.where(separator, special["sep"], special["pad"])
    around = tf.where(position == start, special["cls"], around)
    real = position < ends[:, -1:]
    return {
        "tokens": tf.where(in_a | in_b, ids, tf.where(real, around, special["pad"])),
        "segments": as_ids((position > first_sep) & real),
        "positions": as_ids(tf.where(real, position - start, 0)),
        "sequence_ids": tf.where(real, owner + 1, 0),
        "cls_positions": as_ids(tf.where(used, starts, 0)),
        "pair_labels": as_ids(label),
        "pair_weights": as_weights(used & paired),
        "ends": as_ids(ends),
        "sizes": as_ids(a_length + b_length),
        "maskable": in_a | in_b,
        "begins": (position == start + 1) | ((position == first_sep + 1) & in_b),
    }


def as_ids(values):
    """Casts to int32, the type of ids, positions and labels in a batch."""
    return tf.cast(values, tf.int32)


def as_weights(values):
    """Casts to float32, the type of weights in a batch."""
    return tf.cast(values, tf.float32)


def look_up(path: Path, numbers):
    """Returns array[numbers], of the array in a .npy file."""
    return tf.gather(map_file(path), numbers)


def gather_range(tokens, separators, ranges, length: int, special: dict, sequences: int) -> dict:
    """Returns rows before masking, what `gather` returns without pairs, but `ends` and `sizes` as of one sequence:
    [CLS], a range of the stream of tasks/documents.py, [SEP].

    tokens: all of the split.
    separators: int64[D], where they are.
    ranges: int64[B, 2], start and size of each.
    sequences: S; if more than 1, the separators after a document are [SEP] and [CLS], and each document is a sequence.
    """
    start = ranges[:, :1]
    size = ranges[:, 1:]
    position = tf.range(length, dtype=tf.int64)[None, :]
    inside = (position > 0) & (position <= size)
    places = start + tf.minimum(tf.maximum(position - 1, 0), size - 1)
    ids, ends_there, owner, ends = gather_stream(tokens, separators, places, min(sequences, 2))
    if sequences == 1:
        owner = tf.zeros_like(owner)
        ends = ends[:, :0]
    begins = tf.concat([tf.zeros_like(start), ends + 2 - start], axis=1)  # of sequences in the row
    place = position - of_pair(begins, owner)  # in its sequence
    maskable = inside & ~ends_there & (place > 0)
    real = position < size + 2
    around = tf.where(place == 0, special["cls"], special["sep"])
    begins = tf.pad(tf.where(begins < size, begins, 0), [[0, 0], [0, sequences]])
    return {
        "tokens": tf.where(maskable, ids, tf.where(real, around, special["pad"])),
        "segments": tf.zeros_like(ids),
        "positions": as_ids(tf.where(real, place, 0)),
        "sequence_ids": tf.where(real, owner + 1, 0),
        "cls_positions": as_ids(begins[:, :sequences]),
        "ends": as_ids(size + 2),
        "sizes": tf.reduce_sum(as_ids(maskable), axis=1, keepdims=True),
        "maskable": maskable,
        "begins": maskable & ~tf.pad(maskable, [[0, 0], [1, 0]])[:, :-1],
    }


def gather_blocks(tokens, separators, starts, length: int, separator: int) -> dict[str, tf.Tensor]:
    """Returns full rows: blocks of the stream of tasks/documents.py. starts: int64[B], where they start there."""
    position = tf.range(length, dtype=tf.int64)[None, :]
    ids, between, *_ = gather_stream(tokens, separators, starts[:, None] + position)
    return {
        "tokens": tf.where(between, separator, ids),
        "segments": tf.zeros_like(ids),
        "positions": tf.zeros_like(ids) + tf.cast(position, tf.int32),
        "sequence_ids": tf.ones_like(ids),
        "cls_positions": tf.zeros_like(ids[:, :1]),
        "next_weights": tf.ones_like(ids, tf.float32) * as_weights(position < length - 1),
    }


def gather_stream(tokens, separators, places, width: int = 1) -> tuple:
    """Returns the ids at places of the stream of tasks/documents.py, int32[B, L]; whether a document ends there, bool;
    how many have ended before it in the row, int32; and where they end, int64[B, N], the row's and at least one more.

    An id is meaningless at a separator.

    tokens: all of the split.
    separators: int64[D], the first one after each document, which has `width` of them.
    places: int64[B, L], ascending in each row, the first one in a document.
    """
    with tf.init_scope():  # a constant of the graph would be copied
        separators = tf.constant(separators)
    # Searches the few separators that may be in a row instead of all.
    first = tf.searchsorted(separators, places[:, 0])
    most = tf.reduce_max(tf.searchsorted(separators, places[:, -1]) - first)
    near = tf.minimum(first[:, None] + tf.range(most + 1)[None, :], separators.shape[0] - 1)
    near = tf.gather(separators, near)
    passed = tf.searchsorted(near, places)
    between = tf.gather(near, passed, batch_dims=1) == places
    source = places - width * tf.cast(first[:, None] + passed, tf.int64)
    ids = tf.cast(tf.gather(tokens, tf.where(~between, source, 0)), tf.int32)
    return ids, between, passed, near


def exclusive(sums):
    """Converts inclusive cumulative sums along axis 1 to exclusive ones."""
    return tf.concat([tf.zeros_like(sums[:, :1]), sums[:, :-1]], axis=1)


def owners(ends, positions):
    """Returns int32[B or 1, N]: the number of the pair at each position, from 0; after the last pair, that of the last.

    ends: int[B, S], where each pair ends in its row; an absent pair ends where it begins.    positions: int[B or 1, N].
    """
    sequences = ends.shape[1]
    if sequences == 1:
        return tf.zeros_like(positions, tf.int32)
    positions = tf.broadcast_to(positions, [tf.shape(ends)[0], tf.shape(positions)[1]])
    return tf.minimum(tf.searchsorted(ends, positions, side="right"), sequences - 1)


def of_pair(values, owner):
    """Gathers the value of each position's pair: [B, S, ...] -> [B, N, ...], or [B, 1, ...] if S is 1."""
    if values.shape[1] == 1:
        return values
    return tf.gather(values, owner, batch_dims=1)
