"""80/10/10 masking of whole batches, as TensorFlow graph operations: single tokens or whole words.

A pair of n tokens, [CLS] and [SEP] among them, gets round(0.15 n) predictions, at least one; if those
of a row are more than fit, each of its pairs gives up its share. Which tokens and what becomes of them
are draws of (seed, phase, epoch, number of the pair in the epoch, position in the pair), so a pair's
masks do not depend on the row, the batch or the host it is in, and are new in every epoch.

B rows, L length, P predictions, S pairs a row at most. Words are numbered along the row from 0.
"""

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from bert_jax import prng
from bert_jax.data.assemble import at, before, owners
from bert_jax.data.batch_spec import Spec

KINDS = ("token", "whole_word")
PURPOSES = ("choose", "replace", "random_token")  # the order of the keys


class Pairs(NamedTuple):
    """The pairs of the rows, and what their draws are keyed by."""

    ends: tf.Tensor  # int32[B, S] where each ends in its row
    starts: tf.Tensor  # int32[B, S] where each begins
    sizes: tf.Tensor  # int32[B, S] how many there may be masked in each
    keys: tf.Tensor  # uint32[B, S, 3], one a purpose of PURPOSES

    def draw(self, purpose: int, places):
        """int32[B or 1, N] places in the row -> uint32[B, N]."""
        values = tf.stack([self.keys[..., purpose], tf.bitcast(self.starts, tf.uint32)], axis=2)
        keys, starts = tf.unstack(at(values, owners(self.ends, places)), axis=2)
        return prng.fold(keys, tf.cast(places, tf.uint32) - starts, tf.bitwise.right_shift)


def mask(
    spec: Spec, mask_id: int, word_starts: np.ndarray, keys, tokens, ends, sizes, maskable, begins
) -> dict[str, tf.Tensor]:
    """Chooses positions and hides their tokens.

    word_starts: bool[V].    keys: uint32[B, S, 3], one a purpose of PURPOSES.    tokens: int32[B, L].
    ends: int32[B, S], where each pair ends in its row; one that is not there ends where it begins.
    sizes: int32[B, S], how many tokens of each are maskable.    maskable: bool[B, L], tokens of A or B.
    begins: bool[B, L], the first token of A and of B.
    """
    pairs, length = Pairs(ends, before(ends), sizes, keys), tokens.shape[1]
    wanted = number_wanted(spec, pairs, length)
    if spec.masking == "whole_word":
        known = tf.minimum(tokens, len(word_starts) - 1)  # stream.py refuses the others
        starts = maskable & (begins | tf.gather(tf.constant(word_starts), known))
        positions = choose_words(spec, pairs, wanted, maskable, starts)
    else:
        positions = choose_tokens(spec, pairs, wanted, maskable)
    used = positions < length
    positions = tf.where(used, positions, 0)
    targets = tf.gather(tokens, positions, batch_dims=1)
    shown = replacements(spec, mask_id, len(word_starts), pairs, positions, targets)
    # Places that are not used write the [CLS] at position 0 over itself.
    shown = tf.where(used, shown, tokens[:, :1])
    rows = tf.broadcast_to(tf.range(tf.shape(tokens)[0])[:, None], tf.shape(shown))
    return {
        "tokens": tf.tensor_scatter_nd_update(tokens, tf.stack([rows, positions], 2), shown),
        "masked_positions": positions,
        "masked_targets": tf.where(used, targets, 0),
        "masked_weights": tf.cast(used, tf.float32),
    }


def number_wanted(spec: Spec, pairs: Pairs, length: int):
    """int32[B, S]: predictions each pair is to get, no more in a row than fit."""
    table = np.maximum(np.rint(spec.mask_rate * np.arange(length + 1)), 1).astype(np.int32)
    wanted = tf.gather(tf.constant(table), pairs.ends - pairs.starts)
    # A row's places are shared out by what each pair wants, rounded so that none is left over.
    upto = tf.cast(tf.cumsum(tf.minimum(wanted, pairs.sizes), axis=1), tf.int64)
    total = upto[:, -1:]
    upto = upto * tf.minimum(total, spec.max_predictions) // tf.maximum(total, 1)
    return tf.cast(upto - before(upto), tf.int32)


def in_order(pairs: Pairs, there, number: int):
    """int32[B, number]: places of the row pair by pair, those of each in random order; behind all those that are not
    `there`, bool[B, L]."""
    place = tf.range(there.shape[1])[None, :]
    scores = tf.cast(tf.bitwise.right_shift(pairs.draw(0, place), np.uint32(1)), tf.int32)
    scores = tf.where(there, scores, -1)
    if pairs.ends.shape[1] > 1:
        owner = tf.cast(owners(pairs.ends, place), tf.int64)
        scores = tf.where(there, tf.cast(scores, tf.int64) - owner * 2**31, tf.int64.min)
    return tf.math.top_k(scores, number).indices


def choose_tokens(spec: Spec, pairs: Pairs, wanted, maskable):
    """int32[B, P]: `wanted` different places a pair, each set of them as likely; ascending, L behind them."""
    length, sequences = maskable.shape[1], wanted.shape[1]
    # All of a row's places are put in order only where it has several pairs: the first few are found sooner.
    order = in_order(pairs, maskable, spec.max_predictions if sequences == 1 else length)
    upto, slot = tf.cumsum(wanted, axis=1), tf.range(spec.max_predictions)[None, :]
    first = before(tf.cumsum(pairs.sizes, axis=1)) - before(upto)
    used = slot < upto[:, -1:]
    best = tf.where(used, slot + at(first, owners(upto, slot)), 0)
    return tf.sort(tf.where(used, tf.gather(order, best, batch_dims=1), length), axis=1)


def choose_words(spec: Spec, pairs: Pairs, wanted, maskable, starts):
    """int32[B, P]: words in random order; one that would exceed `wanted` tokens of its pair is passed over, as in
    the original. Ascending, L behind them.

    starts: bool[B, L], where words begin.
    """
    length = maskable.shape[1]
    words = tf.maximum(tf.cumsum(tf.cast(starts, tf.int32), axis=1) - 1, 0)
    sizes = sum_by(words, maskable)
    # Of words, what `pairs` are of places: their draws are by their number in the pair.
    ends = sums(starts, pairs.ends)[1]
    ends = tf.cumsum(ends, axis=1)
    of_words = Pairs(ends, before(ends), ends - before(ends), pairs.keys)
    order = in_order(of_words, sizes > 0, length)
    taken = take_in_order(of_words, tf.gather(sizes, order, batch_dims=1), wanted)
    taken = sum_by(order, taken)
    chosen = maskable & (tf.gather(taken, words, batch_dims=1) > 0)
    from_end = tf.where(chosen, length - tf.range(length), 0)
    return length - tf.math.top_k(from_end, spec.max_predictions).values


def sum_by(columns, flags):
    """int32[B, L], bool[B, L] -> int32[B, L]: how many of a row's flags name a column."""
    rows, length = tf.shape(columns)[0], columns.shape[1]
    flat = columns + tf.range(rows)[:, None] * length
    # On the CPU six times as fast as a scatter.
    sums = tf.math.unsorted_segment_sum(
        tf.reshape(tf.cast(flags, tf.int32), [-1]), tf.reshape(flat, [-1]), rows * length
    )
    return tf.reshape(sums, tf.shape(columns))


def sums(values, ends):
    """[B, L], int32[B, S] -> int32[B, L] along each pair, which end there, int32[B, S] of each pair."""
    upto = tf.cumsum(tf.cast(values, tf.int32), axis=1)
    if ends.shape[1] == 1:
        return upto, upto[:, -1:]
    of_ends = tf.gather(tf.pad(upto, [[0, 0], [1, 0]]), ends, batch_dims=1)
    owner = owners(ends, tf.range(values.shape[1])[None, :])
    return upto - at(before(of_ends), owner), of_ends - before(of_ends)


def take_in_order(words: Pairs, sizes, room):
    """bool[B, L]: which of the sizes are taken, going through the words of each pair from left to right
    and passing over each that no longer fits into the pair's room, int32[B, S].

    All pairs at once: take those that fit together from the left; the first that does not is larger
    than the room now left, so drop all such and go on. The largest size that fits falls every time:
    there are as many rounds as sizes.
    """
    owner = owners(words.ends, tf.range(sizes.shape[1])[None, :])

    def fitting(taken, room):
        return ~taken & (sizes > 0) & (sizes <= at(room, owner))

    def body(taken, room):
        fits = fitting(taken, room)
        fits &= sums(tf.where(fits, sizes, 0), words.ends)[0] <= at(room, owner)
        return taken | fits, room - sums(tf.where(fits, sizes, 0), words.ends)[1]

    start = (tf.zeros_like(sizes, tf.bool), room)
    return tf.while_loop(lambda *state: tf.reduce_any(fitting(*state)), body, start)[0]


def replacements(spec: Spec, mask_id: int, vocabulary: int, pairs: Pairs, positions, targets):
    """What is shown at the chosen positions: [MASK], a token of the whole vocabulary, or the token
    that was there."""
    chance = tf.cast(pairs.draw(1, positions), tf.int64)
    bits = tf.cast(pairs.draw(2, positions), tf.int64)
    random = tf.cast(tf.bitwise.right_shift(bits * vocabulary, np.int64(32)), tf.int32)
    masked_below = round(spec.mask_share * 2**32)
    random_below = round((spec.mask_share + spec.random_share) * 2**32)
    other = tf.where(chance < random_below, random, targets)
    return tf.where(chance < masked_below, mask_id, other)
