"""Assembles rows of token ids from ranges of a split's tokens, as TensorFlow operations.

B rows, L length, N positions, S pairs per row at most, one after the other.
"""

import mmap
import sys
from pathlib import Path

import numpy as np
import tensorflow as tf

from bert_jax.tokenizers.special_tokens import Frame

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


def gather(tokens, pairs, length: int, frame: Frame, pad: int, paired: bool) -> dict:
    """Returns rows before masking: the texts A and B of each pair in their frame, or A alone, one pair after the other.

    Besides arrays of the batch contract, it returns inputs of masking.apply:
        ends: int32[B, S], where each pair ends.
        sizes: int32[B, S], the number of tokens of A and B together.
        maskable: bool[B, L], tokens of A or B.

    tokens: all of the split.
    pairs: int64[B, S, 5], with the columns of dataset.py; zeros for an absent pair.
    frame: of ids.
    pad: the id of padding.
    paired: whether rows have B.

    For example, a row of two pairs in the frame of BERT, the first of 2 and 3 tokens, the second of 1 and 1:

        position    0  1  2  3  4  5  6  7  8  9 10 11 12 13
        tokens      C  a  a  S  b  b  b  S  C  a  S  b  S  -     C: [CLS], S: [SEP], -: padding
        owners      0  0  0  0  0  0  0  0  1  1  1  1  1  1     the pair of each position
        start       0  0  0  0  0  0  0  0  8  8  8  8  8  8     where that pair begins
        a_end       3  3  3  3  3  3  3  3 10 10 10 10 10 10     where its A ends
        end         8  8  8  8  8  8  8  8 13 13 13 13 13 13     where it ends itself
    """
    a_source, a_size, b_source, b_size, labels = tf.unstack(pairs, axis=2)
    between = frame.between if paired else ()
    # Values of each pair, [B, S].
    sizes = a_size + b_size
    is_present = a_size > 0
    ends = tf.cumsum(tf.where(is_present, sizes + frame.size(1 + paired), 0), axis=1)
    starts = shift_right(ends)
    a_begins = starts + len(frame.begin)
    a_ends = a_begins + a_size
    b_begins = a_ends + len(between)
    # From a position in the row to the place of its token in the split.
    a_shifts = a_source - a_begins
    b_shifts = b_source - b_begins
    # Values of the pair at each position, [B, L].
    position = number_columns(length, tf.int64)
    owners = find_owners(ends, position)
    values = tf.stack([starts, a_ends, ends, a_shifts, b_shifts], axis=2)
    start, a_end, end, a_shift, b_shift = tf.unstack(gather_by_pair(values, owners), axis=2)
    b_begin = a_end + len(between)
    b_end = end - len(frame.end)
    is_real = position < ends[:, -1:]
    in_a = (position >= start + len(frame.begin)) & (position < a_end)
    in_b = (position >= b_begin) & (position < b_end)
    maskable = in_a | in_b
    source = position + tf.where(in_a, a_shift, b_shift)
    ids = as_ids(tf.gather(tokens, tf.where(maskable, source, 0)))
    around = tf.constant(pad)
    around = put(around, position, start, frame.begin)
    around = put(around, position, a_end, between)
    around = put(around, position, b_end, frame.end)
    around = tf.where(is_real, around, pad)
    segments = as_ids((position >= b_begin) & is_real & paired)
    if frame.last_segment is not None:
        segments = tf.where(is_real & (position == end - 1), frame.last_segment, segments)
    return {
        "tokens": tf.where(maskable, ids, around),
        "segments": segments,
        "positions": as_ids(tf.where(is_real, position - start, 0)),
        "sequence_ids": tf.where(is_real, owners + 1, 0),
        "cls_positions": as_ids(tf.where(is_present, starts, 0)),
        "pair_labels": as_ids(labels),
        "pair_weights": as_weights(is_present & paired),
        "ends": as_ids(ends),
        "sizes": as_ids(sizes),
        "maskable": maskable,
    }


def put(ids, position, first, tokens: tuple):
    """Replaces ids by tokens from the position `first` of each row on."""
    for number, token in enumerate(tokens):
        ids = tf.where(position == first + number, token, ids)
    return ids


def pad_sequences(rows, sequences: int):
    """Appends absent sequences to rows: int64[B, S, ...] -> int64[B, sequences, ...]."""
    padding = [[0, 0] for _ in rows.shape]
    padding[1][1] = sequences - rows.shape[1]
    return tf.pad(rows, padding)


def as_ids(values):
    """Casts to int32, the type of ids, positions and labels in a batch."""
    return tf.cast(values, tf.int32)


def as_int64(values):
    """Casts to int64, the type of positions in the tokens of a split."""
    return tf.cast(values, tf.int64)


def as_weights(values):
    """Casts to float32, the type of weights in a batch."""
    return tf.cast(values, tf.float32)


def look_up(path: Path, numbers):
    """Returns array[numbers], of the array in a .npy file."""
    return tf.gather(map_file(path), numbers)


def gather_range(
    tokens, separators, ranges, length: int, frame: Frame, pad: int, sequences: int
) -> dict:
    """Returns rows before masking: a range of the stream of tasks/text/documents.py in a frame.

    The arrays are those of `gather` without pairs, but `ends` and `sizes` as of one sequence.

    tokens: all of the split.
    separators: int64[D], where they are.
    ranges: int64[B, 2], start and size of each.
    frame, pad: see `gather`. One token ends the frame.
    sequences: S; if more than 1, the separators after a document are the end of its frame and the beginning of the
        next one's, and each document is a sequence. Otherwise it is the token of the end.

    For example, documents of 3 tokens a and 4 tokens b in the frame of BERT, packed, so their stream is a a a | | b b b
    b | |, and the range from 1 of size 7:

        position    0  1  2  3  4  5  6  7  8
        stream         a  a  |  |  b  b  b
        tokens      C  a  a  S  C  b  b  b  S     C: [CLS], S: [SEP]
        owners      0  0  0  0  1  1  1  1  1     the sequence of each position
        place       0  1  2  3  0  1  2  3  4     the position in its sequence
    """
    begin = len(frame.begin)
    around_document = frame.size() if sequences > 1 else 1
    start = ranges[:, :1]
    size = ranges[:, 1:]
    position = number_columns(length, tf.int64)
    inside = (position >= begin) & (position < begin + size)
    offsets = tf.minimum(tf.maximum(position - begin, 0), size - 1)
    ids, ends_there, owners, ends = gather_stream(
        tokens, separators, start + offsets, around_document
    )
    if sequences == 1:
        owners = tf.zeros_like(owners)
        ends = ends[:, :0]
    # Of sequences in the row.
    begins = tf.concat([tf.zeros_like(start), ends + frame.size() - start], axis=1)
    place = position - gather_by_pair(begins, owners)  # in its sequence
    maskable = inside & ~ends_there & (place >= begin)
    real = position < size + frame.size()
    (end,) = frame.end
    around = put(end, place, 0, frame.begin)
    around = tf.where(real, around, pad)
    cls_positions = tf.where(begins < size, begins, 0)
    cls_positions = tf.pad(cls_positions, [[0, 0], [0, sequences]])
    return {
        "tokens": tf.where(maskable, ids, around),
        "segments": tf.zeros_like(ids),
        "positions": as_ids(tf.where(real, place, 0)),
        "sequence_ids": tf.where(real, owners + 1, 0),
        "cls_positions": as_ids(cls_positions[:, :sequences]),
        "ends": as_ids(size + frame.size()),
        "sizes": tf.reduce_sum(as_ids(maskable), axis=1, keepdims=True),
        "maskable": maskable,
    }


def gather_blocks(tokens, separators, blocks, length: int, separator: int) -> dict:
    """Returns rows that are blocks of the stream of tasks/text/documents.py, with padding at their ends.

    blocks: int64[B, 2], start and size of each in the stream; the start -1 is that of a separator before the stream.
    separator: its id; padding has it, too.
    """
    start = blocks[:, :1]
    size = blocks[:, 1:]
    position = number_columns(length, tf.int64)
    places = start + tf.minimum(position, size - 1)
    ids, is_separator, *_ = gather_stream(tokens, separators, tf.maximum(places, 0))
    real = position < size
    is_token = real & ~is_separator & (places >= 0)
    zeros = tf.zeros_like(ids)
    return {
        "tokens": tf.where(is_token, ids, separator),
        "segments": zeros,
        "positions": as_ids(tf.where(real, position, 0)),
        "sequence_ids": as_ids(real),
        "cls_positions": zeros[:, :1],
        "next_weights": as_weights(position < size - 1),
    }


def gather_stream(tokens, separators, places, width: int = 1) -> tuple:
    """Returns the ids at places of the stream of tasks/text/documents.py, int32[B, L], and the ends of documents there.

    These are: whether a document ends there, bool[B, L]; how many have ended before it in the row, int32[B, L]; and
    where they end, int64[B, N], the row's and at least one more. An id is meaningless at a separator.

    tokens: all of the split.
    separators: int64[D], the first one after each document, which has `width` of them.
    places: int64[B, L], ascending in each row, the first one in a document.
    """
    with tf.init_scope():  # a constant of the graph would be copied
        separators = tf.constant(separators)
    # Searches the few separators that may be in a row instead of all.
    first = tf.searchsorted(separators, places[:, 0])
    last = tf.searchsorted(separators, places[:, -1])
    most = tf.reduce_max(last - first)
    numbers = first[:, None] + number_columns(most + 1)
    numbers = tf.minimum(numbers, separators.shape[0] - 1)
    near = tf.gather(separators, numbers)
    passed = tf.searchsorted(near, places)
    is_separator = gather_by_row(near, passed) == places
    documents = as_int64(first[:, None] + passed)
    source = places - width * documents
    ids = as_ids(tf.gather(tokens, tf.where(~is_separator, source, 0)))
    return ids, is_separator, passed, near


def shift_right(array):
    """Moves the columns of [B, N] to the right by one, after zeros: cumulative sums become exclusive ones."""
    return tf.concat([tf.zeros_like(array[:, :1]), array[:, :-1]], axis=1)


def number_columns(length, dtype=tf.int32):
    """Returns a row of the numbers of columns, from 0: dtype[1, length]."""
    return tf.range(length, dtype=dtype)[None, :]


def gather_by_row(array, columns):
    """Gathers array[b, columns[b]] for each row b: [B, N, ...] by int[B, M] -> [B, M, ...]."""
    return tf.gather(array, columns, batch_dims=1)


def find_owners(ends, positions):
    """Returns int32[B or 1, N]: the number of the pair at each position, from 0; after the last pair, that of the last.

    ends: int[B, S], where each pair ends in its row; an absent pair ends where it begins.
    positions: int[B or 1, N].
    """
    sequences = ends.shape[1]
    if sequences == 1:
        return tf.zeros_like(positions, tf.int32)
    shape = [tf.shape(ends)[0], tf.shape(positions)[1]]
    positions = tf.broadcast_to(positions, shape)
    owners = tf.searchsorted(ends, positions, side="right")
    return tf.minimum(owners, sequences - 1)


def gather_by_pair(array, owners):
    """Gathers the element of each position's pair: [B, S, ...] -> [B, N, ...], or [B, 1, ...] if S is 1."""
    if array.shape[1] == 1:
        return array
    return gather_by_row(array, owners)
