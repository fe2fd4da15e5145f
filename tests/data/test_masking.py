"""Masks: how many, where, what is shown, and whole words, against the original's loop."""

import numpy as np
import pytest
import tensorflow as tf

from bert_jax.data import masking

VOCABULARY, MASK, PREDICTIONS = 1000, 4, 12
WORD_STARTS = np.random.default_rng(1).random(VOCABULARY) < 0.6


def make_rows(number: int, length: int = 96, seed: int = 0):
    """tokens, maskable, begins: [CLS] A [SEP] B [SEP] of all sizes, ids from 5 on."""
    draw = np.random.default_rng(seed)
    a = draw.integers(1, length - 4, number)
    b = 1 + (draw.random(number) * (length - 3 - a)).astype(int)
    place, a, b = np.arange(length)[None], a[:, None], b[:, None]
    in_a, in_b = (place >= 1) & (place <= a), (place >= a + 2) & (place < a + 2 + b)
    tokens = np.where(in_a | in_b, draw.integers(5, VOCABULARY, (number, length)), 3)
    tokens[:, 0] = 2
    tokens[(place > a + 2 + b) & np.ones_like(tokens, bool)] = 0
    return tokens.astype(np.int32), in_a | in_b, (place == 1) | (place == a + 2)


def make_masking(kind="token", predictions=PREDICTIONS, **changes):
    base = masking.Masking(kind, predictions, 0.15, 0.8, 0.1, MASK, WORD_STARTS)
    return base._replace(**changes)


def apply(settings, rows, keys=(1, 2, 3), numbers=None):
    tokens, maskable, begins = rows
    numbers = np.arange(len(tokens), dtype=np.uint32) if numbers is None else numbers
    sizes = maskable.sum(1, dtype=np.int32)[:, None]
    rows = tokens, sizes + 3, sizes, maskable, begins
    keys = tf.constant(keys, tf.uint32)
    run = tf.function(lambda *arrays: masking.mask(settings, keys, *arrays), autograph=False)
    return {name: value.numpy() for name, value in run(numbers[:, None], *rows).items()}


def wanted(lengths, predictions=PREDICTIONS):
    return np.array([min(predictions, max(1, round(0.15 * int(n)))) for n in lengths])


@pytest.mark.parametrize("kind", masking.KINDS)
def test_what_is_chosen_and_what_is_left_alone(kind):
    tokens, maskable, begins = rows = make_rows(3000)
    made = apply(make_masking(kind), rows)
    used, positions = made["masked_weights"] > 0, made["masked_positions"]
    if kind == "token":
        np.testing.assert_array_equal(used.sum(1), wanted(maskable.sum(1) + 3))
    assert (np.diff(positions, axis=1) > 0)[used[:, 1:]].all()  # ascending, none twice
    assert (np.diff(used.astype(int), axis=1) <= 0).all()  # the used places come first
    assert (positions[~used] == 0).all() and (made["masked_targets"][~used] == 0).all()
    row = np.arange(len(tokens))[:, None]
    assert maskable[row, positions][used].all()  # never [CLS], [SEP] or padding
    assert (tokens[row, positions] == made["masked_targets"])[used].all()
    untouched = np.ones_like(maskable)
    untouched[np.broadcast_to(row, used.shape)[used], positions[used]] = False
    assert (made["tokens"] == tokens)[untouched].all()


def within(count, number, share):
    return abs(count - number * share) < 4.5 * (number * share * (1 - share)) ** 0.5


def test_shares_of_mask_random_and_kept():
    made = apply(make_masking(), make_rows(20_000))
    used = made["masked_weights"] > 0
    row = np.arange(len(used))[:, None]
    shown, targets = (
        made["tokens"][row, made["masked_positions"]][used],
        made["masked_targets"][used],
    )
    assert within((shown == MASK).sum(), shown.size, 0.8 + 0.1 / VOCABULARY)
    assert within((shown == targets).sum(), shown.size, 0.1 + 0.1 / VOCABULARY)
    others = shown[(shown != MASK) & (shown != targets)]
    counts = np.bincount(
        others, minlength=VOCABULARY
    )  # over the whole vocabulary, special ones too
    assert len(counts) == VOCABULARY
    expected = others.size / VOCABULARY
    rest = np.delete(counts, MASK)
    assert abs(((rest - expected) ** 2 / expected).sum() - 999) < 5 * (2 * 999) ** 0.5


def test_other_shares():
    rows = make_rows(500)
    made = apply(make_masking(mask_share=1.0, random_share=0.0), rows)
    row, used = np.arange(500)[:, None], made["masked_weights"] > 0
    assert (made["tokens"][row, made["masked_positions"]][used] == MASK).all()
    made = apply(make_masking(mask_share=0.0, random_share=0.0), rows)
    np.testing.assert_array_equal(made["tokens"], rows[0])
    assert made["masked_weights"].sum() > 0


def test_every_position_is_chosen_as_often():
    tokens, maskable, begins = (np.repeat(array, 40_000, 0) for array in make_rows(1, 40, seed=3))
    made = apply(make_masking(predictions=6), (tokens, maskable, begins))
    used = made["masked_weights"] > 0
    counts = np.bincount(made["masked_positions"][used], minlength=40)
    share = used[0].sum() / maskable[0].sum()
    assert (counts[~maskable[0]] == 0).all()
    assert all(within(count, 40_000, share) for count in counts[maskable[0]])
    together = np.zeros((40, 40))
    for left in range(used[0].sum()):
        for right in range(left + 1, used[0].sum()):
            np.add.at(
                together, (made["masked_positions"][:, left], made["masked_positions"][:, right]), 1
            )
    number, places = used[0].sum(), maskable[0].sum()
    share = number * (number - 1) / (places * (places - 1))
    pairs = together[np.triu(np.outer(maskable[0], maskable[0]), 1)]
    assert all(within(count, 40_000, share) for count in pairs)


def words_of(tokens, maskable, begins):
    """Lists of positions, one a word."""
    words = []
    for place in np.flatnonzero(maskable):
        if begins[place] or WORD_STARTS[tokens[place]]:
            words.append([])
        words[-1].append(int(place))
    return words


def test_whole_words_are_the_originals_in_the_same_order():
    """The original's loop over words in random order, on the order our draws give."""
    tokens, maskable, begins = rows = make_rows(400)
    made = apply(make_masking("whole_word"), rows)
    keys = masking.prng.fold(np.full(1, 1, np.uint32), np.arange(400, dtype=np.uint32))
    draws = masking.prng.fold(keys[:, None], np.arange(96, dtype=np.uint32)[None]) >> np.uint32(1)
    skipped = 0
    for row in range(400):
        words = words_of(tokens[row], maskable[row], begins[row])
        number = wanted([maskable[row].sum() + 3])[0]
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


def test_a_word_is_masked_whole_or_not_at_all():
    tokens, maskable, begins = rows = make_rows(500, seed=5)
    made = apply(make_masking("whole_word"), rows)
    parts = 0
    for row in range(500):
        used = made["masked_weights"][row] > 0
        chosen = set(made["masked_positions"][row][used].tolist())
        for word in words_of(tokens[row], maskable[row], begins[row]):
            parts += len(word) > 1 and word[0] in chosen
            assert len(chosen & set(word)) in (0, len(word))
    assert parts > 300


def test_words_too_long_for_the_predictions_are_never_chosen():
    tokens, maskable, begins = make_rows(50)
    tokens[maskable] = np.flatnonzero(~WORD_STARTS)[5]  # A is one word, and so is B
    made = apply(make_masking("whole_word"), (tokens, maskable, begins))
    number = made["masked_weights"].sum(1)
    sizes = [[len(w) for w in words_of(*row)] for row in zip(tokens, maskable, begins, strict=True)]
    most = wanted(maskable.sum(1) + 3)
    assert all(
        n in (0, *size) and n <= top for n, size, top in zip(number, sizes, most, strict=True)
    )
    assert (number == 0).any()


def test_a_row_is_masked_by_its_number_not_by_its_place():
    tokens, maskable, begins = make_rows(64)
    numbers = np.arange(64, dtype=np.uint32)
    for kind in masking.KINDS:
        whole = apply(make_masking(kind), (tokens, maskable, begins), numbers=numbers)
        some = np.array([63, 5, 6, 40])
        part = apply(
            make_masking(kind), (tokens[some], maskable[some], begins[some]), numbers=numbers[some]
        )
        for name in whole:
            np.testing.assert_array_equal(part[name], whole[name][some])
        other = apply(make_masking(kind), (tokens, maskable, begins), keys=(9, 2, 3))
        assert (other["masked_positions"] != whole["masked_positions"]).any(1).mean() > 0.9
