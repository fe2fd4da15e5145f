"""80/10/10 masking of whole batches, as TensorFlow graph operations: single tokens, whole words, or spans of words.

A pair of n tokens, including [CLS] and [SEP], gets round(mask_rate * n) predictions, at least one. If a row would
get more than `predictions`, its pairs get fewer in proportion. Tokens and replacements are drawn by the row's key and
the position in the row, so masks do not depend on batch or host, and change with every epoch.

For `ngram` (arXiv:1909.11942, section 4.1) and `span` (arXiv:1907.10529), each row is divided into spans of words
whose lengths are drawn; a span ends early with its sentence or document. Spans are masked in random order. Where fewer
predictions are left than a span has tokens, the words of it and of later spans that fit are masked (SpanBERT's code
cuts one span, between tokens). Where no word is left that fits, as in text without spaces, single tokens are masked
(the original code then predicts less). A `span` draws once what replaces its tokens; in the other kinds, each token
draws.

B rows, L length, P predictions, S pairs per row at most. Words are numbered along the row from 0.
"""

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from bert_jax import prng
from bert_jax.data.assemble import as_ids, exclusive, of_pair, owners

# {kind of masking: shares of the spans of up to 1, 2, ... words}. ngram: in proportion to 1 / words. span: geometric,
# with p = 0.2 and at most 10 words, which has a mean of 3.8.
SPANS = {"ngram": np.array([6, 9, 11]) / 11, "span": (1 - 0.8 ** np.arange(1, 11)) / (1 - 0.8**10)}


class Pairs(NamedTuple):
    """The pairs of each row, and the keys of their draws."""

    ends: tf.Tensor  # int32[B, S] where each pair ends in its row
    sizes: tf.Tensor  # int32[B, S] number of maskable tokens in each pair
    keys: tf.Tensor  # uint32[B], one for each row

    def draw(self, purpose: str, positions):
        """Draws uint32[B, N] for positions in the row, int32[B or 1, N]. purpose: a key of prng.PURPOSE."""
        shift = tf.bitwise.right_shift
        number = np.uint32(prng.PURPOSE[purpose])
        keys = prng.fold(self.keys, number, shift)[:, None]
        return prng.fold(keys, tf.cast(positions, tf.uint32), shift)


def apply(task, mask_rate: float, predictions, special, word_starts, keys, arrays) -> dict:
    """Masks assembled rows: chooses positions, replaces their tokens, and adds the masked_* arrays of the contract.

    task: `config.task`.
    mask_rate: share of tokens that are predicted.
    predictions: masked positions per row, at most.
    special: {name: id}.
    word_starts: bool[V], the pieces that start a word.
    keys: uint32[B].
    arrays: those of the batch contract, and besides, which are left out of the result: ends, int32[B, S], where each
    pair ends in its row; an absent pair ends where it begins. sizes, int32[B, S], number of maskable tokens in each
    pair. maskable, bool[B, L], tokens of A or B. begins, bool[B, L], the first token of A and of B.
    """
    arrays = dict(arrays)
    pairs = Pairs(arrays.pop("ends"), arrays.pop("sizes"), keys)
    maskable = arrays.pop("maskable")
    begins = arrays.pop("begins")
    tokens = arrays["tokens"]
    length = tokens.shape[1]
    wanted = number_wanted(mask_rate, predictions, pairs, length)
    if task.masking == "token":
        draws = pairs.draw("choose", tf.range(length)[None, :])
        positions = choose_tokens(predictions, pairs, wanted, maskable, draws)
    else:
        clipped = tf.minimum(tokens, len(word_starts) - 1)
        starts = maskable & (begins | tf.gather(tf.constant(word_starts), clipped))
        words = tf.maximum(tf.cumsum(as_ids(starts), axis=1) - 1, 0)
        spans = spans_of_words(task.masking, pairs, count_by_column(words, begins & starts) > 0)
        positions = choose_words(predictions, pairs, wanted, maskable, starts, words, spans)
    used = positions < length
    positions = tf.where(used, positions, 0)
    targets = tf.gather(tokens, positions, batch_dims=1)
    group = positions
    if task.masking == "span":
        group = tf.gather(spans, tf.gather(words, positions, batch_dims=1), batch_dims=1)
    shown = replacements(task, special["mask"], len(word_starts), pairs, positions, group, targets)
    # Unused predictions write the [CLS] at position 0 over itself.
    shown = tf.where(used, shown, tokens[:, :1])
    rows = tf.broadcast_to(tf.range(tf.shape(tokens)[0])[:, None], tf.shape(shown))
    return arrays | {
        "tokens": tf.tensor_scatter_nd_update(tokens, tf.stack([rows, positions], 2), shown),
        "masked_positions": positions,
        "masked_targets": tf.where(used, targets, 0),
        "masked_weights": tf.cast(used, tf.float32),
    }


def number_wanted(mask_rate: float, predictions: int, pairs: Pairs, length: int):
    """Returns int32[B, S]: the number of predictions of each pair, at most `predictions` per row."""
    table = np.maximum(np.rint(mask_rate * np.arange(length + 1)), 1).astype(np.int32)
    wanted = tf.gather(tf.constant(table), pairs.ends - exclusive(pairs.ends))
    # If a row has too many, its predictions are divided in proportion; rounding cumulative sums keeps their total.
    upto = tf.cast(tf.cumsum(tf.minimum(wanted, pairs.sizes), axis=1), tf.int64)
    total = upto[:, -1:]
    upto = upto * tf.minimum(total, predictions) // tf.maximum(total, 1)
    return tf.cast(upto - exclusive(upto), tf.int32)


def spans_of_words(kind: str, pairs: Pairs, begins):
    """Returns int32[B or 1, L]: the number of the span of each word of a row. begins: bool[B, L], whether a span must
    begin at a word. A word is a span of its own if `kind` is not in SPANS.
    """
    number = tf.range(begins.shape[1])[None, :]
    if kind not in SPANS:
        return number
    table = 1 + np.searchsorted(SPANS[kind], (np.arange(1 << 16) + 0.5) / (1 << 16))
    bits = tf.bitwise.right_shift(pairs.draw("span_length", number), np.uint32(16))
    ends = tf.cumsum(tf.gather(tf.constant(table, tf.int32), as_ids(bits)), axis=1)
    spans = owners(ends, number)
    begins |= spans > tf.pad(spans, [[0, 0], [1, 0]])[:, :-1]
    return tf.cumsum(as_ids(begins), axis=1)


def random_order(pairs: Pairs, eligible, number: int, draws):
    """Returns int32[B, number]: the eligible positions of a row, pair by pair, by descending draws within each pair.

    Positions that are not eligible, bool[B, L], come last. draws: uint32[B, L]; positions with the same draw stay
    together, in their order.
    """
    scores = as_ids(tf.bitwise.right_shift(draws, np.uint32(1)))
    scores = tf.where(eligible, scores, -1)
    if pairs.ends.shape[1] > 1:
        owner = tf.cast(owners(pairs.ends, tf.range(eligible.shape[1])[None, :]), tf.int64)
        scores = tf.where(eligible, tf.cast(scores, tf.int64) - owner * 2**31, tf.int64.min)
    return tf.math.top_k(scores, number).indices


def choose_tokens(predictions: int, pairs: Pairs, wanted, maskable, draws):
    """Returns int32[B, P]: the `wanted` positions of each pair with the largest draws, uint32[B, L]; ascending, then
    L."""
    length = maskable.shape[1]
    # A full sort is needed only for packed rows; with one pair, the top P positions are cheaper.
    number = predictions if wanted.shape[1] == 1 else length
    order = random_order(pairs, maskable, number, draws)
    upto = tf.cumsum(wanted, axis=1)
    slot = tf.range(predictions)[None, :]
    first = exclusive(tf.cumsum(pairs.sizes, axis=1)) - exclusive(upto)
    used = slot < upto[:, -1:]
    best = tf.where(used, slot + of_pair(first, owners(upto, slot)), 0)
    return tf.sort(tf.where(used, tf.gather(order, best, batch_dims=1), length), axis=1)


def choose_words(predictions: int, pairs: Pairs, wanted, maskable, starts, words, spans):
    """Returns int32[B, P]: the positions of the whole words of randomly drawn spans; ascending, then L.

    As in the original code, skips a word that would exceed `wanted` tokens of its pair. Then adds single tokens where
    no word was left that fits.

    starts: bool[B, L], where words begin.
    words: int32[B, L], the word at each position.
    spans: int32[B or 1, L], the span of each word.
    """
    length = maskable.shape[1]
    sizes = count_by_column(words, maskable)
    # Like `pairs`, but in units of words: a word is drawn by its number in the row.
    ends = tf.cumsum(sums_by_pair(starts, pairs.ends)[1], axis=1)
    of_words = Pairs(ends, ends - exclusive(ends), pairs.keys)
    order = random_order(of_words, sizes > 0, length, pairs.draw("choose", spans))
    taken = take_in_order(of_words, tf.gather(sizes, order, batch_dims=1), wanted)
    taken = count_by_column(order, taken)
    parts = pairs.draw("parts", tf.range(length)[None, :])
    draws = tf.where(tf.gather(taken, words, batch_dims=1) > 0, np.uint32(2**32 - 1), parts)
    return choose_tokens(predictions, pairs, wanted, maskable, draws)


def count_by_column(columns, flags):
    """Counts flags by column: columns int32[B, L], flags bool[B, L] -> int32[B, L], the set flags of each column."""
    length = columns.shape[1]
    counts = tf.math.bincount(columns, tf.cast(flags, tf.int32), length, length, axis=-1)
    return tf.ensure_shape(counts, columns.shape)


def sums_by_pair(values, ends):
    """Returns cumulative sums of values[B, L] within each pair, int32[B, L], and the sum of each pair, int32[B, S]."""
    upto = tf.cumsum(tf.cast(values, tf.int32), axis=1)
    if ends.shape[1] == 1:
        return upto, upto[:, -1:]
    of_ends = tf.gather(tf.pad(upto, [[0, 0], [1, 0]]), ends, batch_dims=1)
    owner = owners(ends, tf.range(values.shape[1])[None, :])
    return upto - of_pair(exclusive(of_ends), owner), of_ends - exclusive(of_ends)


def take_in_order(words: Pairs, sizes, room):
    """Returns bool[B, L]: the words taken when each pair is filled from left to right, skipping words that do not fit.

    sizes: int32[B, L], tokens of each word.
    room: int32[B, S], tokens to take from each pair.

    All pairs are processed at once. Each round takes the longest prefix of fitting words that fits as a whole. The
    first word after it is larger than the remaining room. So the largest size that still fits decreases with every
    round, and there are at most as many rounds as distinct sizes.
    """
    owner = owners(words.ends, tf.range(sizes.shape[1])[None, :])

    def find_fitting(taken, room):
        return ~taken & (sizes > 0) & (sizes <= of_pair(room, owner))

    def is_any_left(taken, room):
        return tf.reduce_any(find_fitting(taken, room))

    def take(taken, room):
        words_to_take = find_fitting(taken, room)
        upto, _ = sums_by_pair(tf.where(words_to_take, sizes, 0), words.ends)
        words_to_take &= upto <= of_pair(room, owner)
        _, total = sums_by_pair(tf.where(words_to_take, sizes, 0), words.ends)
        return taken | words_to_take, room - total

    taken = tf.zeros_like(sizes, tf.bool)
    return tf.while_loop(is_any_left, take, (taken, room))[0]


def replacements(task, mask_id: int, vocabulary, pairs: Pairs, positions, group, targets):
    """Returns the model's input at the chosen positions: [MASK], a random id of the vocabulary, or the token itself.

    group: int32[B, P]; equal numbers in a row have the same one of these three.
    """
    chance = tf.cast(pairs.draw("replace", group), tf.int64)
    bits = tf.cast(pairs.draw("random_token", positions), tf.int64)
    random = tf.cast(tf.bitwise.right_shift(bits * vocabulary, np.int64(32)), tf.int32)
    masked_below = round(task.mask_share * 2**32)
    random_below = round((task.mask_share + task.random_share) * 2**32)
    other = tf.where(chance < random_below, random, targets)
    return tf.where(chance < masked_below, mask_id, other)
