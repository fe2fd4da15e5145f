"""Texts read backwards, and orders of tokens, as TensorFlow operations.

B rows, L length, P predictions.
"""

import tensorflow as tf

from bert_jax import prng
from bert_jax.data import assemble
from bert_jax.data.dataset import A_SIZE, B_SIZE
from bert_jax.tasks.text.pair_rows import SWAPPED
from bert_jax.tokenizers.special_tokens import Frame

shift_bits = tf.bitwise.right_shift


def draw(keys, purpose: str, counters):
    """Returns uint32[B, N] of keys uint32[B] and counters int32[1, N]."""
    keys = prng.fold(keys, prng.purpose(purpose), shift_bits)
    return prng.fold(keys[:, None], tf.cast(counters, tf.uint32), shift_bits)


def choose_backward(rows, keys, share: float):
    """Returns bool[B]: whether a row is read backwards."""
    bits = draw(keys, "backward", assemble.number_columns(1))[:, 0]
    return assemble.as_int64(bits) < round(share * 2**32)


def swap_texts(rows, is_backward):
    """Returns rows int64[B, 1, 5] that have their second text, if there is one, in front of the first where they are
    read backwards: bool[B]."""
    is_swapped = is_backward[:, None, None] & (rows[..., B_SIZE, None] > 0)
    return tf.where(is_swapped, tf.gather(rows, SWAPPED, axis=-1), rows)


def mirror(rows, frame: Frame, length: int):
    """Returns int32[B, L]: the place of each token of rows int64[B, 1, 5] whose texts are read backwards, each at its
    place in the frame."""
    position = assemble.number_columns(length, tf.int64)
    result = tf.zeros_like(rows[:, 0, :1]) + position
    begin = len(frame.begin)
    for column in (A_SIZE, B_SIZE):
        end = begin + rows[:, 0, column, None]
        is_inside = (position >= begin) & (position < end)
        result = tf.where(is_inside, begin + end - 1 - position, result)
        begin = end + len(frame.between)
    return assemble.as_ids(result)


def reverse_texts(arrays: dict, rows, frame: Frame, is_backward) -> dict:
    """Returns the arrays of a batch with the texts of some rows read backwards. is_backward: bool[B]."""
    tokens = arrays["tokens"]
    length = tokens.shape[1]
    places = assemble.number_columns(length)
    places = tf.where(is_backward[:, None], mirror(rows, frame, length), places)
    positions = assemble.gather_by_row(places, arrays["masked_positions"])
    is_used = arrays["masked_weights"] > 0
    return arrays | {
        "tokens": assemble.gather_by_row(tokens, places),
        "masked_positions": tf.where(is_used, positions, 0),
    }


def ranks(arrays: dict, is_text, keys):
    """Returns int32[B, L]: 0 for tokens of texts that are not predicted, and for padding; a random order, from 1 on, of
    predicted and special tokens.

    As in the authors' code, special tokens have a rank, so that tokens of the texts do not see them.

    is_text: bool[B, L], tokens of the texts. keys: uint32[B].
    """
    length = is_text.shape[1]
    is_used = assemble.as_ids(arrays["masked_weights"] > 0)
    counts = tf.math.bincount(arrays["masked_positions"], is_used, length, length, axis=-1)
    is_predicted = tf.ensure_shape(counts, is_text.shape) > 0
    bits = draw(keys, "permutation", assemble.number_columns(length))
    order = tf.argsort(assemble.as_int64(bits), axis=1)
    places = tf.argsort(order, axis=1)  # of each position in the order
    is_seen_by_all = (is_text & ~is_predicted) | (arrays["sequence_ids"] == 0)
    return tf.where(is_seen_by_all, 0, 1 + places)
