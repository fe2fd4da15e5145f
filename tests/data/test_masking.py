"""Masking: number and positions of predictions, replacements; words and spans compared with the original's loop."""

from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf
from scipy.stats import chi2

from bert_jax import prng
from bert_jax.data import masking

VOCABULARY, MASK, PREDICTIONS = 1000, 4, 12
WORD_STARTS = np.random.default_rng(1).random(VOCABULARY) < 0.6
# {kind: shares of the lengths of spans}; arXiv:1909.11942 has 6/11, 3/11 and 2/11, arXiv:1907.10529 a mean of 3.8
SHARES = {"ngram": np.array([6, 3, 2]) / 11, "span": 0.2 * 0.8 ** np.arange(10) / (1 - 0.8**10)}


def make_rows(number: int, length: int = 96):
    """Returns tokens, maskable and begins of rows [CLS] A [SEP] B [SEP] of random sizes; ids are 5 or more."""
    draw = np.random.default_rng(0)
    a = draw.integers(1, length - 4, number)
    b = 1 + (draw.random(number) * (length - 3 - a)).astype(int)
    place, a, b = np.arange(length)[None], a[:, None], b[:, None]
    in_a, in_b = (place >= 1) & (place <= a), (place >= a + 2) & (place < a + 2 + b)
    tokens = np.where(in_a | in_b, draw.integers(5, VOCABULARY, (number, length)), 3)
    tokens[:, 0] = 2
    tokens[(place > a + 2 + b) & np.ones_like(tokens, bool)] = 0
    return tokens.astype(np.int32), in_a | in_b, (place == 1) | (place == a + 2)


def apply(kind, rows, rate=0.15, most=PREDICTIONS):
    task = SimpleNamespace(masking=kind, mask_share=0.8, random_share=0.1)
    tokens, maskable, _ = rows
    keys = prng.fold(np.uint32(1), np.arange(len(tokens), dtype=np.uint32))
    sizes = maskable.sum(1, dtype=np.int32)[:, None]
    arrays = {"tokens": tokens, "ends": sizes + 3, "sizes": sizes, "maskable": maskable}
    function = partial(masking.apply, task, rate, most, {"mask": MASK}, WORD_STARTS)
    made = tf.function(function, autograph=False)(keys, arrays)
    return {name: value.numpy() for name, value in made.items()}


def drawn(purpose, number):
    """Returns the draws of these rows, uint32[number, 96]: what masking.py draws for positions, words or spans."""
    keys = prng.fold(np.uint32(1), np.arange(number, dtype=np.uint32))
    keys = prng.fold(keys, np.uint32(prng.PURPOSE[purpose]))
    return prng.fold(keys[:, None], np.arange(96, dtype=np.uint32)[None])


def words_of(kind, tokens, maskable, begins):
    """Returns a list of positions for each word; for single tokens, each is a word."""
    words = []
    for place in np.flatnonzero(maskable):
        if kind == "token" or begins[place] or WORD_STARTS[tokens[place]]:
            words.append([])
        words[-1].append(int(place))
    return words


def spans_of(kind, words, begins, lengths):
    """Returns the number of each word's span, by which it is drawn; the first span of words has the number 1."""
    if kind not in SHARES:
        return [word[0] for word in words] if kind == "token" else range(len(words))
    ends, spans = {0, *np.cumsum(lengths)}, [0]
    for number, word in enumerate(words):
        spans.append(spans[-1] + (number in ends or bool(begins[word[0]])))
    return spans[1:]


@pytest.mark.parametrize(("long", "rate", "most"), [(0, 0.15, 12), (1, 0.15, 12), (0, 0.4, 40)])
@pytest.mark.parametrize("kind", ["token", "whole_word", "ngram", "span"])
def test_masks_equal_the_original_algorithm(kind, long, rate, most):
    """The original's loop over words chooses the same positions, given our random order. Others are unchanged.

    Where no word is left that fits, single tokens of words make up for it, in an order of their own; the original
    predicts less then. long: A and B are one word each. most: predictions.
    """
    tokens, maskable, begins = rows = make_rows(400)
    if long:
        tokens[maskable] = np.flatnonzero(~WORD_STARTS)[5]
    made, skipped = apply(kind, rows, rate, most), 0
    draws, replaced = drawn("choose", 400) >> np.uint32(1), drawn("replace", 400) / 2**32
    of_parts = drawn("parts", 400) >> np.uint32(1)
    shares = np.cumsum(SHARES.get(kind, [1.0]))
    lengths = 1 + np.searchsorted(shares, ((drawn("span_length", 400) >> 16) + 0.5) / 2**16)
    for row in range(400):
        words = words_of(kind, tokens[row], maskable[row], begins[row])
        spans = spans_of(kind, words, begins[row], lengths[row])
        number = min(most, max(1, round(rate * int(maskable[row].sum() + 3))))
        chosen = {}
        for word in sorted(range(len(words)), key=lambda word: -int(draws[row, spans[word]])):
            if len(chosen) + len(words[word]) <= number:
                chosen |= dict.fromkeys(words[word], spans[word])
            else:
                skipped += len(chosen) < number
        owners = {place: span for word, span in zip(words, spans, strict=False) for place in word}
        rest = sorted(set(owners).difference(chosen), key=lambda place: -int(of_parts[row, place]))
        chosen |= {place: owners[place] for place in rest[: number - len(chosen)]}
        used, expected = made["masked_weights"][row], tokens[row].copy()
        assert used.tolist() == [1] * len(chosen) + [0] * (most - len(chosen))
        positions = made["masked_positions"][row].tolist()
        assert positions == sorted(chosen) + [0] * (most - len(chosen))
        targets = np.where(used, tokens[row, positions], 0)
        np.testing.assert_array_equal(made["masked_targets"][row], targets)
        for place, span in chosen.items():
            share = replaced[row, span if kind == "span" else place]
            is_random = 0.8 <= share < 0.9
            expected[place] = MASK if share < 0.8 else made["tokens"][row, place]
            assert is_random or share < 0.8 or expected[place] == tokens[row, place]
        np.testing.assert_array_equal(made["tokens"][row], expected)
    assert skipped > 100 or (kind == "token" and not skipped)


@pytest.mark.parametrize("kind", SHARES)
def test_lengths_of_spans_have_the_published_distribution(kind):
    """Chi-square; the first 50 spans of a row of 512 words are never cut by its end."""
    keys = prng.fold(np.uint32(1), np.arange(1000, dtype=np.uint32))
    pairs = masking.Pairs(None, None, keys)
    spans = masking.spans_of_words(kind, pairs, tf.zeros([1000, 512], bool)).numpy()
    sizes = np.array([np.bincount(row, minlength=50)[:50] for row in spans])
    counts, expected = np.bincount(sizes.ravel())[1:], sizes.size * SHARES[kind]
    assert len(counts) == len(expected)
    assert chi2.sf(((counts - expected) ** 2 / expected).sum(), len(counts) - 1) > 1e-4
    assert sizes.mean() == pytest.approx({"ngram": 18 / 11, "span": 3.8}[kind], abs=0.02)
