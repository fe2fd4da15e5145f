"""The documents of a split as one stream of words, and batches of it, as TensorFlow operations.

B rows, L length in words, M characters of a word, W words of a split.
"""

from pathlib import Path
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from elmo import characters
from elmo.words import MARKS, Pieces

from bert_jax.data import assemble

PIECES = 16  # of a word, at most; the rest is cut


class Stream(NamedTuple):
    """The documents of a split, one after the other, each between [CLS] and [SEP]."""

    path: Path  # of the pieces of the split
    firsts: np.ndarray  # int64[W], the place of the first piece of each word
    separators: np.ndarray  # the place of [SEP] after each document in the stream
    pieces: Pieces

    def gather(self, rows, length: int, size: int) -> dict:
        """Returns the arrays of a batch. rows: int64[B, 2], start and size in the stream. size: M."""
        start = rows[:, :1]
        count = rows[:, 1:]
        position = assemble.number_columns(length, tf.int64)
        is_real = position < count
        places = start + tf.minimum(position, count - 1)
        with tf.init_scope():  # constants of the graph would be copied
            firsts = tf.constant(self.firsts)

        def look_up(places):
            places = tf.maximum(places, 0)
            return assemble.gather_stream(firsts, self.separators, places, MARKS)[:2]

        first, is_end = look_up(places)
        is_begin = look_up(places - 1)[1] | (places < 0)
        ids, texts = self.read(first)
        special = self.pieces.special
        ids = tf.where(is_begin, special["cls"], tf.where(is_end, special["sep"], ids))
        codes = encode(texts, size)
        for is_mark, code in (is_begin, characters.BEGIN), (is_end, characters.END):
            codes = tf.where(is_mark[..., None], tf.constant(characters.mark(code, size)), codes)
        zeros = tf.zeros_like(ids)
        return {
            "tokens": tf.where(is_real, ids, special["sep"]),
            "segments": zeros,
            "positions": assemble.as_ids(tf.where(is_real, position, 0)),
            "sequence_ids": assemble.as_ids(is_real),
            "cls_positions": zeros[:, :1],
            "characters": tf.where(is_real[..., None], codes, 0),
            "next_weights": neighbours(is_real, ~is_begin, 1),
            "previous_weights": neighbours(is_real, ~is_end, -1),
        }

    def read(self, first):
        """Returns the target int32[B, L] and the text of each word. first: int32[B, L], places of first pieces."""
        tokens = assemble.map_file(self.path)
        with tf.init_scope():
            begins_word = tf.constant(self.pieces.begins_word)
            pieces = tf.constant(self.pieces.texts)
        places = first[..., None] + tf.range(PIECES)
        is_inside = places < tf.shape(tokens)[0]
        ids = assemble.as_ids(tf.gather(tokens, tf.where(is_inside, places, 0)))
        continues = is_inside & ~tf.gather(begins_word, ids) | (tf.range(PIECES) == 0)
        is_part = tf.math.cumprod(tf.cast(continues, tf.int32), axis=-1) > 0
        texts = tf.strings.reduce_join(tf.where(is_part, tf.gather(pieces, ids), ""), axis=-1)
        return tf.where(is_part[..., 1], self.pieces.special["unk"], ids[..., 0]), texts


def encode(texts, size: int):
    """Returns the characters int32[..., M] of words, as characters.encode does. size: M."""
    most = size - 2
    # Behind the end of a word are zeros, which none has.
    codes = tf.cast(tf.io.decode_raw(texts, tf.uint8, fixed_length=most), tf.int32)
    codes = tf.pad(codes, [[0, 0]] * (len(codes.shape) - 1) + [[1, 1]])
    position = tf.range(size)
    end = 1 + tf.minimum(tf.strings.length(texts), most)[..., None]
    codes = tf.where(position < end, codes + 1, characters.PADDING)
    codes = tf.where(position == end, characters.WORD_END, codes)
    return tf.where(position == 0, characters.WORD_BEGIN, codes)


def neighbours(is_real, counts, shift: int):
    """Returns float32[B, L]: whether the word behind each one, or with shift -1 that in front of it, counts.

    is_real, counts: bool[B, L].
    """
    length = is_real.shape[1]
    position = tf.range(length) + shift
    is_inside = (position >= 0) & (position < length)
    counts = tf.roll(is_real & counts, -shift, axis=1)
    return assemble.as_weights(is_real & counts & is_inside)
