"""80/10/10 masking of whole batches, as TensorFlow graph operations: single tokens or whole words.

A row of n tokens, [CLS] and [SEP] among them, gets round(0.15 n) predictions, at least one and at
most as many as fit. Which tokens and what becomes of them are draws of (seed, phase, epoch, number
of the row in the epoch, position), so a row's masks do not depend on the batch or the host it is
in, and are new in every epoch.

B rows, L length, P predictions. Words are numbered along the row from 0.
"""

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from bert_jax import hash

KINDS = ("token", "whole_word")
PURPOSES = ("choose", "replace", "random_token")  # the order of the keys


class Masking(NamedTuple):
    kind: str  # token or whole_word
    predictions: int  # masked positions a row, at most
    rate: float  # share of the tokens that are predicted
    mask_share: float  # of those, shown as [MASK]
    random_share: float  # of those, shown as a random token; the rest is kept
    mask_id: int  # of [MASK]
    word_starts: np.ndarray  # bool[V], for whole words


class Choice(NamedTuple):
    """Positions to predict, ascending in the row, the used ones first."""

    positions: tf.Tensor  # int32[B, P]; 0 where not used
    used: tf.Tensor  # bool[B, P]


def mask(masking: Masking, keys, numbers, tokens, maskable, begins) -> dict[str, tf.Tensor]:
    """Chooses positions and hides their tokens.

    keys: uint32[3], one a purpose of PURPOSES.    numbers: uint32[B], of the rows in the epoch.
    tokens: int32[B, L].    maskable: bool[B, L], tokens of A or B.    begins: bool[B, L], the first
    token of A and of B.
    """
    row_keys = hash.fold(keys[:, None], numbers[None, :], tf.bitwise.right_shift)
    wanted = number_wanted(masking, maskable, begins)
    scores = chances(row_keys[0], tf.range(tokens.shape[1])[None, :])
    if masking.kind == "whole_word":
        choice = choose_words(masking, scores, wanted, tokens, maskable, begins)
    else:
        choice = choose_tokens(masking, scores, wanted, maskable)
    targets = tf.gather(tokens, choice.positions, batch_dims=1)
    shown = replacements(masking, row_keys, choice.positions, targets)
    return {
        "tokens": put(tokens, choice, shown),
        "masked_positions": choice.positions,
        "masked_targets": tf.where(choice.used, targets, 0),
        "masked_weights": tf.cast(choice.used, tf.float32),
    }


def number_wanted(masking: Masking, maskable, begins):
    """int32[B]: predictions a row is to get."""
    special = 1 + count(begins)  # [CLS], and a [SEP] after each segment
    lengths = np.arange(maskable.shape[1] + 1)
    table = np.clip(np.rint(masking.rate * lengths), 1, masking.predictions).astype(np.int32)
    return tf.gather(tf.constant(table), count(maskable) + special)


def count(flags):
    """bool[B, L] -> int32[B]."""
    return tf.reduce_sum(tf.cast(flags, tf.int32), axis=1)


def draw(row_keys, positions):
    """uint32[B], int32[B or 1, N] -> uint32[B, N]."""
    return hash.fold(row_keys[:, None], tf.cast(positions, tf.uint32), tf.bitwise.right_shift)


def chances(row_keys, positions):
    """A draw as int32, not negative: the highest are chosen first."""
    return tf.cast(tf.bitwise.right_shift(draw(row_keys, positions), np.uint32(1)), tf.int32)


def choose_tokens(masking: Masking, scores, wanted, maskable) -> Choice:
    """`wanted` different tokens a row, each set of them as likely."""
    length = maskable.shape[1]
    best, positions = tf.math.top_k(tf.where(maskable, scores, -1), masking.predictions)
    used = (tf.range(masking.predictions) < wanted[:, None]) & (best >= 0)
    positions = tf.sort(tf.where(used, positions, length), axis=1)
    return Choice(tf.where(positions < length, positions, 0), positions < length)


def choose_words(masking: Masking, scores, wanted, tokens, maskable, begins) -> Choice:
    """Words in random order; one that would exceed `wanted` tokens is passed over, as in the
    original."""
    length = tokens.shape[1]
    known = tf.minimum(tokens, len(masking.word_starts) - 1)  # stream.py refuses the others
    starts = maskable & (begins | tf.gather(tf.constant(masking.word_starts), known))
    words = tf.maximum(tf.cumsum(tf.cast(starts, tf.int32), axis=1) - 1, 0)
    sizes = sum_by(words, maskable)
    order = tf.math.top_k(tf.where(sizes > 0, scores, -1), length).indices
    taken = sum_by(order, take_in_order(tf.gather(sizes, order, batch_dims=1), wanted))
    chosen = maskable & (tf.gather(taken, words, batch_dims=1) > 0)
    from_end = tf.where(chosen, length - tf.range(length), 0)
    positions = length - tf.math.top_k(from_end, masking.predictions).values
    return Choice(tf.where(positions < length, positions, 0), positions < length)


def sum_by(columns, flags):
    """int32[B, L], bool[B, L] -> int32[B, L]: how many of a row's flags name a column."""
    rows, length = tf.shape(columns)[0], columns.shape[1]
    flat = columns + tf.range(rows)[:, None] * length
    # On the CPU six times as fast as a scatter.
    sums = tf.math.unsorted_segment_sum(
        tf.reshape(tf.cast(flags, tf.int32), [-1]), tf.reshape(flat, [-1]), rows * length
    )
    return tf.reshape(sums, tf.shape(columns))


def take_in_order(sizes, room):
    """bool[B, L]: which of the sizes are taken, going from left to right and passing over each that
    no longer fits.

    All rows at once: take those that fit together from the left; the first that does not is larger
    than the room now left, so drop all such and go on. The largest size that fits falls every time:
    there are as many rounds as sizes.
    """

    def fitting(taken, room):
        return ~taken & (sizes > 0) & (sizes <= room[:, None])

    def body(taken, room):
        fits = fitting(taken, room)
        fits &= tf.cumsum(tf.where(fits, sizes, 0), axis=1) <= room[:, None]
        return taken | fits, room - tf.reduce_sum(tf.where(fits, sizes, 0), axis=1)

    start = (tf.zeros_like(sizes, tf.bool), room)
    return tf.while_loop(lambda *state: tf.reduce_any(fitting(*state)), body, start)[0]


def replacements(masking: Masking, row_keys, positions, targets):
    """What is shown at the chosen positions: [MASK], a token of the whole vocabulary, or the token
    that was there."""
    vocabulary = len(masking.word_starts)
    chance = tf.cast(draw(row_keys[1], positions), tf.int64)
    bits = tf.cast(draw(row_keys[2], positions), tf.int64)
    random = tf.cast(tf.bitwise.right_shift(bits * vocabulary, np.int64(32)), tf.int32)
    masked_below = round(masking.mask_share * 2**32)
    random_below = round((masking.mask_share + masking.random_share) * 2**32)
    other = tf.where(chance < random_below, random, targets)
    return tf.where(chance < masked_below, masking.mask_id, other)


def put(tokens, choice: Choice, shown):
    """The tokens with those at the chosen positions replaced."""
    rows = tf.broadcast_to(tf.range(tf.shape(tokens)[0])[:, None], tf.shape(shown))
    # Places that are not used write the [CLS] at position 0 over itself.
    shown = tf.where(choice.used, shown, tokens[:, :1])
    return tf.tensor_scatter_nd_update(tokens, tf.stack([rows, choice.positions], 2), shown)
