"""Rows of token ids out of the pairs that they have (TensorFlow).

B rows, L length, N places, S pairs a row at most, one behind the other.
"""

import mmap
import sys
from pathlib import Path

import numpy as np
import tensorflow as tf

from bert_jax.data.batch_spec import Spec
from bert_jax.data.sentence_pairs import Rows, special_pieces

# Python names it from 3.13 on.
NORESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000 if sys.platform == "linux" else 0)


def mapped(path: Path) -> tf.Tensor:
    """A .npy file as a tensor that shares its pages: what is read lies in the page cache of the kernel, which takes it
    back, so the file may be larger than memory.

    TensorFlow asks for memory that may be written to. Unlike `np.load(path, mmap_mode="c")` this sets none aside, which
    a machine with less memory than the file has refuses.
    """
    array = np.load(path, mmap_mode="r")
    flags, access = mmap.MAP_PRIVATE | NORESERVE, mmap.PROT_READ | mmap.PROT_WRITE
    with open(path, "rb") as file:
        pages = mmap.mmap(file.fileno(), 0, flags=flags, prot=access)
    array = np.ndarray(array.shape, array.dtype, pages, array.offset)
    return tf.experimental.dlpack.from_dlpack(array.__dlpack__())


def gather(tokens, index, spec: Spec, special: dict) -> dict[str, tf.Tensor]:
    """The rows before masking, [CLS] A [SEP] B [SEP] of one pair after the other; where each pair `ends`, the `sizes`
    of A and B together, which tokens are `maskable` and which of them `begins` A or B.

    tokens: of the split.    index: int64[B, S, 5], of which each is a sentence_pairs.Rows.
    """
    pair = Rows(*tf.unstack(index, axis=2))
    used = pair.a_length > 0
    lengths = pair.a_length + pair.b_length + special_pieces(spec.pair_task)
    ends = tf.cumsum(tf.where(used, lengths, 0), axis=1)
    starts = before(ends)
    first_seps = starts + 1 + pair.a_length
    place = tf.range(spec.length, dtype=tf.int64)[None, :]
    owner = owners(ends, place)
    before_a, before_b = pair.a_start - starts - 1, pair.b_start - first_seps - 1
    values = tf.stack([starts, first_seps, ends - 1, before_a, before_b], axis=2)
    start, first_sep, last_sep, before_a, before_b = tf.unstack(at(values, owner), axis=2)
    in_a = (place > start) & (place < first_sep)
    in_b = (place > first_sep) & (place < last_sep)
    source = tf.where(in_a, before_a, before_b) + place
    ids = tf.cast(tf.gather(tokens, tf.where(in_a | in_b, source, 0)), tf.int32)
    separator = (place == first_sep) | (place == last_sep)
    around = tf.where(separator, special["sep"], special["pad"])
    around = tf.where(place == start, special["cls"], around)
    real = place < ends[:, -1:]
    return {
        "tokens": tf.where(in_a | in_b, ids, tf.where(real, around, special["pad"])),
        "segments": tf.cast((place > first_sep) & real, tf.int32),
        "positions": tf.cast(tf.where(real, place - start, 0), tf.int32),
        "sequence_ids": tf.where(real, owner + 1, 0),
        "cls_positions": tf.cast(tf.where(used, starts, 0), tf.int32),
        "pair_labels": tf.cast(pair.label, tf.int32),
        "pair_weights": tf.cast(used & (spec.pair_task != "none"), tf.float32),
        "ends": tf.cast(ends, tf.int32),
        "sizes": tf.cast(pair.a_length + pair.b_length, tf.int32),
        "maskable": in_a | in_b,
        "begins": (place == start + 1) | ((place == first_sep + 1) & in_b),
    }


def before(sums):
    """Sums up to and with each column -> those up to it."""
    return tf.concat([tf.zeros_like(sums[:, :1]), sums[:, :-1]], axis=1)


def owners(ends, places):
    """int[B, S], int[B or 1, N] -> int32[B or 1, N]: the pair at each place, counted from 0; the last one behind all.

    ends: where each pair ends in its row; one that is not there ends where it begins.
    """
    sequences = ends.shape[1]
    if sequences == 1:
        return tf.zeros_like(places, tf.int32)
    places = tf.broadcast_to(places, [tf.shape(ends)[0], tf.shape(places)[1]])
    return tf.minimum(tf.searchsorted(ends, places, side="right"), sequences - 1)


def at(values, owner):
    """[B, S, ...] -> [B, N, ...], or [B, 1, ...] where S is 1: of each place's pair."""
    return values if values.shape[1] == 1 else tf.gather(values, owner, batch_dims=1)
