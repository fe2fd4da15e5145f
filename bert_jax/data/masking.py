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
from bert_jax.data.assemble import (
    as_ids,
    as_int64,
    as_weights,
    find_owners,
    gather_by_pair,
    gather_by_row,
    number_columns,
    shift_right,
)

# {kind of masking: shares of the spans of up to 1, 2, ... words}. ngram: in proportion to 1 / words. span: geometric,
# with p = 0.2 and at most 10 words, which has a mean of 3.8.
SPANS = {
    "ngram": np.array([6, 9, 11]) / 11,
    "span": (1 - 0.8 ** np.arange(1, 11)) / (1 - 0.8**10),
}

shift = tf.bitwise.right_shift


class Pairs(NamedTuple):
    """The pairs of each row, and the keys of their draws."""

    ends: tf.Tensor  # int32[B, S] where each pair ends in its row
    sizes: tf.Tensor  # int32[B, S] number of maskable tokens in each pair
    keys: tf.Tensor  # uint32[B], one for each row

    def draw(self, purpose: str, positions):
        """Draws uint32[B, N] for positions in the row, int32[B or 1, N]. purpose: as of `prng.purpose`."""
        keys = prng.fold(self.keys, prng.purpose(purpose), shift)[:, None]
        return prng.fold(keys, tf.cast(positions, tf.uint32), shift)


def apply(task, mask_rate: float, predictions, special, word_starts, keys, arrays) -> dict:
    """Masks assembled rows: chooses positions, replaces their tokens, and adds the masked_* arrays of the contract.

    task: `config.task`.
    mask_rate: share of tokens that are predicted.
    predictions: masked positions per row, at most.
    special: {name: id}.
    word_starts: bool[V], the pieces that start a word.
    keys: uint32[B].
    arrays: those of the batch contract, and these, which are left out of the result:
        ends: int32[B, S], where each pair ends in its row; an absent pair ends where it begins.
        sizes: int32[B, S], number of maskable tokens in each pair.
        maskable: bool[B, L], tokens of A or B.
    """
    arrays = dict(arrays)
    pairs = Pairs(arrays.pop("ends"), arrays.pop("sizes"), keys)
    maskable = arrays.pop("maskable")
    tokens = arrays["tokens"]
    length = tokens.shape[1]
    vocabulary = len(word_starts)

    counts = count_predictions(mask_rate, predictions, pairs, length)
    if task.masking == "token":
        draws = pairs.draw("choose", number_columns(length))
        positions = choose_tokens(predictions, pairs, counts, maskable, draws)
    else:
        ids = tf.minimum(tokens, vocabulary - 1)
        starts_word = tf.gather(tf.constant(word_starts), ids)
        # A text begins behind a special token.
        begins = maskable & ~shift_right(maskable)
        starts = maskable & (begins | starts_word)
        words = tf.maximum(tf.cumsum(as_ids(starts), axis=1) - 1, 0)
        begins_text = count_by_column(words, begins) > 0
        spans = spans_of_words(task.masking, pairs, begins_text)
        positions = choose_words(
            predictions,
            pairs,
            counts,
            maskable,
            starts,
            words,
            spans,
        )

    is_used = positions < length
    positions = tf.where(is_used, positions, 0)
    targets = gather_by_row(tokens, positions)
    groups = positions
    if task.masking == "span":
        groups = gather_by_row(spans, gather_by_row(words, positions))
    inputs = replacements(
        task,
        special["mask"],
        vocabulary,
        pairs,
        positions,
        groups,
        targets,
    )
    # Unused predictions write the [CLS] at position 0 over itself.
    inputs = tf.where(is_used, inputs, tokens[:, :1])
    rows = tf.range(tf.shape(tokens)[0])[:, None]
    rows = tf.broadcast_to(rows, tf.shape(inputs))
    places = tf.stack([rows, positions], 2)
    return arrays | {
        "tokens": tf.tensor_scatter_nd_update(tokens, places, inputs),
        "masked_positions": positions,
        "masked_targets": tf.where(is_used, targets, 0),
        "masked_weights": as_weights(is_used),
    }


def count_predictions(mask_rate: float, predictions: int, pairs: Pairs, length: int):
    """Returns int32[B, S]: the number of predictions of each pair, at most `predictions` per row."""
    by_size = np.maximum(np.rint(mask_rate * np.arange(length + 1)), 1)
    by_size = tf.constant(by_size, tf.int32)
    counts = tf.gather(by_size, pairs.ends - shift_right(pairs.ends))
    counts = tf.minimum(counts, pairs.sizes)
    # If a row has too many, its predictions are divided in proportion; rounding cumulative sums keeps their total.
    sums = as_int64(tf.cumsum(counts, axis=1))
    total = sums[:, -1:]
    sums = sums * tf.minimum(total, predictions) // tf.maximum(total, 1)
    return as_ids(sums - shift_right(sums))


def spans_of_words(kind: str, pairs: Pairs, begins):
    """Returns int32[B or 1, L]: the number of the span of each word of a row.

    A word is a span of its own if `kind` is not in SPANS. begins: bool[B, L], whether a span must begin at a word.
    """
    words = number_columns(begins.shape[1])
    if kind not in SPANS:
        return words
    # The length of a span by the upper 16 bits of its draw.
    shares = (np.arange(1 << 16) + 0.5) / (1 << 16)
    lengths = 1 + np.searchsorted(SPANS[kind], shares)
    bits = shift(pairs.draw("span_length", words), 16)
    lengths = tf.gather(tf.constant(lengths, tf.int32), as_ids(bits))
    spans = find_owners(tf.cumsum(lengths, axis=1), words)
    begins |= spans > shift_right(spans)
    return tf.cumsum(as_ids(begins), axis=1)


def draw_order(ends, eligible, number: int, draws):
    """Returns int32[B, number]: the eligible positions of a row, pair by pair, by descending draws within each pair.

    Positions that are not eligible, bool[B, L], come last. ends: int32[B, S], where the positions of each pair end.
    draws: uint32[B, L]; positions with the same draw stay together, in their order.
    """
    scores = as_ids(shift(draws, 1))
    if ends.shape[1] > 1:
        owners = find_owners(ends, number_columns(eligible.shape[1]))
        scores = as_int64(scores) - as_int64(owners) * 2**31
    scores = tf.where(eligible, scores, scores.dtype.min)
    return tf.math.top_k(scores, number).indices


def choose_tokens(predictions: int, pairs: Pairs, counts, maskable, draws):
    """Returns int32[B, P]: the positions of each pair with the largest draws, uint32[B, L]; ascending, then L.

    counts: int32[B, S], positions of each pair.

    For example, a row of two pairs, which have 4 and 3 maskable positions and get 2 and 1 predictions:

        order        3 1 4 2   8 6 7    by descending draws
        slots        0 1       2        of predictions
        places       0 1       4        of the slots in the order
        positions    3 1       8        returned as 1 3 8
    """
    length = maskable.shape[1]
    number = predictions
    if counts.shape[1] > 1:
        # Packed rows need a full sort; with one pair, the top P positions are cheaper.
        number = length
    order = draw_order(pairs.ends, maskable, number, draws)
    order_begins = shift_right(tf.cumsum(pairs.sizes, axis=1))
    slot_ends = tf.cumsum(counts, axis=1)
    slot_begins = shift_right(slot_ends)
    slots = number_columns(predictions)
    is_used = slots < slot_ends[:, -1:]
    owners = find_owners(slot_ends, slots)
    places = slots + gather_by_pair(order_begins - slot_begins, owners)
    places = tf.where(is_used, places, 0)
    positions = tf.where(is_used, gather_by_row(order, places), length)
    return tf.sort(positions, axis=1)


def choose_words(predictions: int, pairs: Pairs, counts, maskable, starts, words, spans):
    """Returns int32[B, P]: the positions of the whole words of randomly drawn spans; ascending, then L.

    As in the original code, skips a word that would exceed the `counts` of its pair. Then adds single tokens where no
    word was left that fits.

    counts: int32[B, S], positions of each pair.
    starts: bool[B, L], where words begin.
    words: int32[B, L], the word at each position.
    spans: int32[B or 1, L], the span of each word.
    """
    length = maskable.shape[1]
    sizes = count_by_column(words, maskable)
    # Where pairs end, in units of words.
    _, words_of_pairs = sum_by_pair(starts, pairs.ends)
    ends = tf.cumsum(words_of_pairs, axis=1)
    order = draw_order(ends, sizes > 0, length, pairs.draw("choose", spans))
    is_taken = take_in_order(gather_by_row(sizes, order), ends, counts)
    # From the places of the order back to the numbers of words.
    is_taken = count_by_column(order, is_taken) > 0
    draws = pairs.draw("parts", number_columns(length))
    largest = np.uint32(2**32 - 1)
    draws = tf.where(gather_by_row(is_taken, words), largest, draws)
    return choose_tokens(predictions, pairs, counts, maskable, draws)


def count_by_column(columns, flags):
    """Counts flags by column: columns int32[B, L], flags bool[B, L] -> int32[B, L], the set flags of each column."""
    length = columns.shape[1]
    counts = tf.math.bincount(columns, as_ids(flags), length, length, axis=-1)
    return tf.ensure_shape(counts, columns.shape)


def sum_by_pair(numbers, ends):
    """Returns cumulative sums of numbers[B, L] within each pair, int32[B, L], and the sum of each pair, int32[B, S]."""
    sums = tf.cumsum(as_ids(numbers), axis=1)
    if ends.shape[1] == 1:
        return sums, sums[:, -1:]
    sums_at_ends = gather_by_row(tf.pad(sums, [[0, 0], [1, 0]]), ends)
    sums_before = shift_right(sums_at_ends)
    owners = find_owners(ends, number_columns(numbers.shape[1]))
    return sums - gather_by_pair(sums_before, owners), sums_at_ends - sums_before


def take_in_order(sizes, ends, room):
    """Returns bool[B, L]: the words taken when each pair is filled from left to right, skipping words that do not fit.

    sizes: int32[B, L], tokens of each word; 0 if there is none.
    ends: int32[B, S], where the words of each pair end.
    room: int32[B, S], tokens to take from each pair.

    All pairs are filled at once, in rounds. The candidates of a round are the words that are not taken and fit by
    themselves; it takes the longest prefix of them that fits as a whole. The candidate after the prefix is larger than
    the room that is left. So the largest size that still fits decreases with every round, and there are at most as many
    rounds as distinct sizes. For example, with room for 9 tokens:

        1st round   candidates   4  3  5  1  2  1
                    sums         4  7 12 13 15 16   takes 4 and 3, room for 2 is left
        2nd round   candidates            1  2  1
                    sums                  1  3  4   takes 1, room for 1 is left
        3rd round   candidates                  1   takes 1
    """
    owners = find_owners(ends, number_columns(sizes.shape[1]))

    def fit(tokens, room):
        return tokens <= gather_by_pair(room, owners)

    def take_prefix(is_taken, is_candidate, room):
        sums, _ = sum_by_pair(tf.where(is_candidate, sizes, 0), ends)
        is_prefix = is_candidate & fit(sums, room)
        _, totals = sum_by_pair(tf.where(is_prefix, sizes, 0), ends)
        room -= totals
        is_candidate &= ~is_prefix & fit(sizes, room)
        return is_taken | is_prefix, is_candidate, room

    def is_any_left(is_taken, is_candidate, room):
        return tf.reduce_any(is_candidate)

    is_taken = tf.zeros_like(sizes, tf.bool)
    is_candidate = (sizes > 0) & fit(sizes, room)
    is_taken, *_ = tf.while_loop(is_any_left, take_prefix, (is_taken, is_candidate, room))
    return is_taken


def replacements(task, mask_id: int, vocabulary, pairs: Pairs, positions, groups, targets):
    """Returns the model's input at the chosen positions: [MASK], a random id of the vocabulary, or the token itself.

    groups: int32[B, P]; equal numbers in a row have the same one of these three.
    """
    draws = as_int64(pairs.draw("replace", groups))
    bits = as_int64(pairs.draw("random_token", positions))
    random_ids = as_ids(shift(bits * vocabulary, 32))
    masked_below = round(task.mask_share * 2**32)
    random_below = round((task.mask_share + task.random_share) * 2**32)
    inputs = tf.where(draws < random_below, random_ids, targets)
    return tf.where(draws < masked_below, mask_id, inputs)
