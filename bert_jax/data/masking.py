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
from bert_jax.data import pair_at_place

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


class Pairs(NamedTuple):
    """The pairs of the rows, and what their draws are keyed by."""

    ends: tf.Tensor  # int32[B, S] where each ends in its row
    starts: tf.Tensor  # int32[B, S] where each begins
    sizes: tf.Tensor  # int32[B, S] how many there may be masked in each
    keys: tf.Tensor  # uint32[3, B, S], one a purpose of PURPOSES

    def draw(self, purpose: int, at):
        """int32[B or 1, N] places in the row -> uint32[B, N]."""
        starts = tf.bitcast(self.starts, tf.uint32)
        values = tf.stack([self.keys[purpose], starts], axis=2)
        keys, starts = tf.unstack(
            pair_at_place.at(values, pair_at_place.owners(self.ends, at)), axis=2
        )
        return prng.fold(keys, tf.cast(at, tf.uint32) - starts, tf.bitwise.right_shift)


def mask(
    masking: Masking, keys, numbers, tokens, ends, sizes, maskable, begins
) -> dict[str, tf.Tensor]:
    """Chooses positions and hides their tokens.

    keys: uint32[3], one a purpose of PURPOSES.    numbers: uint32[B, S], of the pairs in the epoch.
    tokens: int32[B, L].    ends: int32[B, S], where each pair ends in its row; one that is not there
    ends where it begins.    sizes: int32[B, S], how many tokens of each are maskable.    maskable:
    bool[B, L], tokens of A or B.    begins: bool[B, L], the first token of A and of B.
    """
    pair_keys = prng.fold(keys[:, None, None], numbers[None], tf.bitwise.right_shift)
    pairs = Pairs(ends, before(ends), sizes, pair_keys)
    wanted = number_wanted(masking, pairs, tokens.shape[1])
    if masking.kind == "whole_word":
        choice = choose_words(masking, pairs, wanted, tokens, maskable, begins)
    else:
        choice = choose_tokens(masking, pairs, wanted, maskable)
    targets = tf.gather(tokens, choice.positions, batch_dims=1)
    shown = replacements(masking, pairs, choice.positions, targets)
    return {
        "tokens": put(tokens, choice, shown),
        "masked_positions": choice.positions,
        "masked_targets": tf.where(choice.used, targets, 0),
        "masked_weights": tf.cast(choice.used, tf.float32),
    }


def before(sums):
    """Sums up to and with each column -> those up to it."""
    return tf.concat([tf.zeros_like(sums[:, :1]), sums[:, :-1]], axis=1)


def number_wanted(masking: Masking, pairs: Pairs, length: int):
    """int32[B, S]: predictions each pair is to get, no more in a row than fit."""
    table = np.maximum(np.rint(masking.rate * np.arange(length + 1)), 1).astype(np.int32)
    wanted = tf.gather(tf.constant(table), pairs.ends - pairs.starts)
    # A row's places are shared out by what each pair wants, rounded so that none is left over.
    upto = tf.cast(tf.cumsum(tf.minimum(wanted, pairs.sizes), axis=1), tf.int64)
    total = upto[:, -1:]
    upto = upto * tf.minimum(total, masking.predictions) // tf.maximum(total, 1)
    return tf.cast(upto - before(upto), tf.int32)


def count(pairs: Pairs, flags):
    """bool[B, L] -> int32[B, S]: how many in each pair."""
    if pairs.ends.shape[1] == 1:
        return tf.reduce_sum(tf.cast(flags, tf.int32), axis=1, keepdims=True)
    upto = tf.cumsum(tf.cast(flags, tf.int32), axis=1)
    upto = tf.gather(tf.pad(upto, [[0, 0], [1, 0]]), pairs.ends, batch_dims=1)
    return upto - before(upto)


def chances(draws):
    """uint32[B, N] as int32, not negative: the highest are chosen first."""
    return tf.cast(tf.bitwise.right_shift(draws, np.uint32(1)), tf.int32)


def in_order(scores, owner, number: int):
    """int32[B, number]: places pair by pair, those of each with the highest scores first; behind all
    those with a score of -1."""
    if owner is not None:
        by_pair = tf.cast(scores, tf.int64) - tf.cast(owner, tf.int64) * 2**31
        scores = tf.where(scores < 0, tf.int64.min, by_pair)
    return tf.math.top_k(scores, number).indices


def choose_tokens(masking: Masking, pairs: Pairs, wanted, maskable) -> Choice:
    """`wanted` different tokens a pair, each set of them as likely."""
    length, sequences = maskable.shape[1], wanted.shape[1]
    place = tf.range(length)[None, :]
    scores = tf.where(maskable, chances(pairs.draw(0, place)), -1)
    # All of a row's places are put in order only where it has several pairs: the first few are found sooner.
    number = masking.predictions if sequences == 1 else length
    order = in_order(scores, pair_at_place.owners(pairs.ends, place), number)
    upto, slot = tf.cumsum(wanted, axis=1), tf.range(masking.predictions)[None, :]
    owner = pair_at_place.owners(upto, slot)
    first = before(tf.cumsum(pairs.sizes, axis=1)) - before(upto)
    used = slot < upto[:, -1:]
    best = tf.gather(order, tf.where(used, slot + pair_at_place.at(first, owner), 0), batch_dims=1)
    positions = tf.sort(tf.where(used, best, length), axis=1)
    return Choice(tf.where(positions < length, positions, 0), positions < length)


def choose_words(masking: Masking, pairs: Pairs, wanted, tokens, maskable, begins) -> Choice:
    """Words in random order; one that would exceed `wanted` tokens of its pair is passed over, as in
    the original."""
    length = tokens.shape[1]
    known = tf.minimum(tokens, len(masking.word_starts) - 1)  # stream.py refuses the others
    starts = maskable & (begins | tf.gather(tf.constant(masking.word_starts), known))
    words = tf.maximum(tf.cumsum(tf.cast(starts, tf.int32), axis=1) - 1, 0)
    sizes = sum_by(words, maskable)
    # Of words, what `pairs` are of places: their draws are by their number in the pair.
    number = count(pairs, starts)
    ends = tf.cumsum(number, axis=1)
    of_words = Pairs(ends, before(ends), number, pairs.keys)
    word = tf.range(length)[None, :]
    scores = tf.where(sizes > 0, chances(of_words.draw(0, word)), -1)
    order = in_order(scores, pair_at_place.owners(ends, word), length)
    taken = take_in_order(of_words, tf.gather(sizes, order, batch_dims=1), wanted)
    taken = sum_by(order, taken)
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


def take_in_order(words: Pairs, sizes, room):
    """bool[B, L]: which of the sizes are taken, going through the words of each pair from left to right
    and passing over each that no longer fits into the pair's room, int32[B, S].

    All pairs at once: take those that fit together from the left; the first that does not is larger
    than the room now left, so drop all such and go on. The largest size that fits falls every time:
    there are as many rounds as sizes.
    """
    owner = pair_at_place.owners(words.ends, tf.range(sizes.shape[1])[None, :])

    def fitting(taken, room):
        return ~taken & (sizes > 0) & (sizes <= pair_at_place.at(room, owner))

    def sums(sizes):
        """Along each pair, and of each pair."""
        upto = tf.cumsum(sizes, axis=1)
        if owner is None:
            return upto, upto[:, -1:]
        ends = tf.gather(tf.pad(upto, [[0, 0], [1, 0]]), words.ends, batch_dims=1)
        return upto - pair_at_place.at(before(ends), owner), ends - before(ends)

    def body(taken, room):
        fits = fitting(taken, room)
        fits &= sums(tf.where(fits, sizes, 0))[0] <= pair_at_place.at(room, owner)
        return taken | fits, room - sums(tf.where(fits, sizes, 0))[1]

    start = (tf.zeros_like(sizes, tf.bool), room)
    return tf.while_loop(lambda *state: tf.reduce_any(fitting(*state)), body, start)[0]


def replacements(masking: Masking, pairs: Pairs, positions, targets):
    """What is shown at the chosen positions: [MASK], a token of the whole vocabulary, or the token
    that was there."""
    vocabulary = len(masking.word_starts)
    chance = tf.cast(pairs.draw(1, positions), tf.int64)
    bits = tf.cast(pairs.draw(2, positions), tf.int64)
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
