"""Masking: number and positions of predictions, replacements, and whole words compared with the original's loop."""

from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf

from bert_jax import prng
from bert_jax.data import masking

VOCABULARY, MASK, PREDICTIONS = 1000, 4, 12
WORD_STARTS = np.random.default_rng(1).random(VOCABULARY) < 0.6


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


def apply(kind, rows):
    task = SimpleNamespace(masking=kind, mask_rate=0.15, mask_share=0.8, random_share=0.1)
    tokens, maskable, begins = rows
    keys = prng.fold(np.uint32(1), np.arange(len(tokens), dtype=np.uint32))
    sizes = maskable.sum(1, dtype=np.int32)[:, None]
    arrays = {"tokens": tokens, "ends": sizes + 3, "sizes": sizes}
    arrays |= {"maskable": maskable, "begins": begins}
    function = partial(masking.apply, task, PREDICTIONS, {"mask": MASK}, WORD_STARTS)
    made = tf.function(function, autograph=False)(keys, arrays)
    return {name: value.numpy() for name, value in made.items()}


def wanted(length):
    return min(PREDICTIONS, max(1, round(0.15 * int(length))))


@pytest.mark.parametrize("kind", ["token", "whole_word"])
def test_positions_are_maskable_and_all_others_unchanged(kind):
    tokens, maskable, begins = rows = make_rows(3000)
    made = apply(kind, rows)
    used, positions = made["masked_weights"] > 0, made["masked_positions"]
    if kind == "token":
        assert used.sum(1).tolist() == [wanted(length) for length in maskable.sum(1) + 3]
    assert (np.diff(positions, axis=1) > 0)[used[:, 1:]].all()  # strictly ascending
    assert (np.diff(used.astype(int), axis=1) <= 0).all()  # used predictions come first
    assert (positions[~used] == 0).all() and (made["masked_targets"][~used] == 0).all()
    row = np.arange(len(tokens))[:, None]
    assert maskable[row, positions][used].all()  # never [CLS], [SEP] or padding
    assert (tokens[row, positions] == made["masked_targets"])[used].all()
    untouched = np.ones_like(maskable)
    untouched[np.broadcast_to(row, used.shape)[used], positions[used]] = False
    assert (made["tokens"] == tokens)[untouched].all()


def words_of(tokens, maskable, begins):
    """Returns a list of positions for each word."""
    words = []
    for place in np.flatnonzero(maskable):
        if begins[place] or WORD_STARTS[tokens[place]]:
            words.append([])
        words[-1].append(int(place))
    return words


@pytest.mark.parametrize("long", [False, True])
def test_whole_words_equal_the_original_algorithm(long):
    """The original's loop over words chooses the same positions, given our random order.

    Words with more pieces than predictions are never chosen. long: A and B are one word each.
    """
    tokens, maskable, begins = rows = make_rows(400)
    if long:
        tokens[maskable] = np.flatnonzero(~WORD_STARTS)[5]
    made = apply("whole_word", rows)
    keys = prng.fold(np.uint32(1), np.arange(400, dtype=np.uint32))
    keys = prng.fold(keys, np.uint32(prng.PURPOSE["choose"]))
    draws = prng.fold(keys[:, None], np.arange(96, dtype=np.uint32)[None]) >> np.uint32(1)
    skipped = 0
    for row in range(400):
        words = words_of(tokens[row], maskable[row], begins[row])
        number = wanted(maskable[row].sum() + 3)
        chosen = []
        for word in sorted(range(len(words)), key=lambda word: -int(draws[row, word])):
            if len(chosen) >= number:
                break
            if len(chosen) + len(words[word]) > number:
                skipped += 1
                continue
            chosen += words[word]
        used = made["masked_weights"][row] > 0
        assert made["masked_positions"][row][used].tolist() == sorted(chosen)
    assert skipped > 100
