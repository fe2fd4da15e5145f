"""The hash gives the same bits in every library, and different keys for different purposes (uniform draws:
tests/data/test_statistics.py)."""

import itertools

import jax.numpy as jnp
import numpy as np
import pytest
import tensorflow as tf

from bert_jax import prng
from bert_jax.data.dataset import draw_key

EDGES = np.array([0, 1, 2, 2**16 - 1, 2**16, 2**31 - 1, 2**31, 2**32 - 1], np.uint32)
DRAWN = np.random.default_rng(0).integers(0, 2**32, 100_000 - len(EDGES), dtype=np.uint32)
VALUES = np.concatenate([EDGES, DRAWN])


def test_numpy_tensorflow_and_jax_agree():
    counters = VALUES[::-1].copy()
    expected = prng.fold(VALUES, counters)
    in_tensorflow = prng.fold(tf.constant(VALUES), tf.constant(counters), tf.bitwise.right_shift)
    in_jax = prng.fold(jnp.asarray(VALUES), jnp.asarray(counters))
    assert expected.dtype == np.uint32
    np.testing.assert_array_equal(in_tensorflow.numpy(), expected)
    np.testing.assert_array_equal(np.asarray(in_jax), expected)


def test_hash_values_do_not_change_between_versions():
    """A change here changes every batch of every run."""
    assert prng.mix(np.array([0, 1, 12345], np.uint32)).tolist() == [0, 1753845952, 2435775735]
    assert [int(prng.key(12345, 3)), int(prng.key(-1))] == [3874584584, 442395774]
    shuffled = prng.shuffle(np.arange(8), 1000, np.full(1, prng.key(1)))
    assert shuffled.tolist() == [225, 975, 36, 245, 564, 64, 557, 856]


def test_keys_of_different_uses_differ():
    uses = itertools.product((12345, 12346), prng.PURPOSE.values(), range(2), range(2), range(40))
    keys = [int(prng.key(*use)) for use in uses]
    assert len(set(keys)) == len(keys)
    assert len(set(prng.PURPOSE.values())) == len(prng.PURPOSE)


KNOWN = {"target_length": 0, "replace": 8, "dropout": 10, "draws": 21, "mixture": 23}
HASHES = {"my_code.corruption": 4128247877, "dropouts": 4179901680, "": 2**31}


@pytest.mark.parametrize(("name", "number"), [*KNOWN.items(), *HASHES.items()])
def test_a_purpose_has_the_same_number_in_every_version(name, number):
    """Of the names of others, too, whose numbers are those of no known purpose."""
    assert prng.purpose(name) == number
    assert (name in prng.PURPOSE) == (number < 2**31)
    assert draw_key(7, name, 0, 1, 2) == prng.key(7, number, 0, 1, 2)


def test_a_key_is_folded_with_any_purpose_in_every_library():
    for name in ("my_code.corruption", "dropout"):
        number = prng.purpose(name)
        expected = prng.fold(VALUES, number)
        in_tensorflow = prng.fold(tf.constant(VALUES), number, tf.bitwise.right_shift)
        np.testing.assert_array_equal(in_tensorflow.numpy(), expected)
        np.testing.assert_array_equal(prng.fold(jnp.asarray(VALUES), number), expected)


def test_shuffle_is_a_permutation():
    for count in (1, 2, 3, 10, 97, 1000, 65_537):
        key = np.full(1, prng.key(count))
        shuffled = prng.shuffle(np.arange(count), count, key)
        np.testing.assert_array_equal(np.sort(shuffled), np.arange(count))
