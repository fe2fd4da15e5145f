"""The counter-based hash behind all random draws but the initial parameters: masks, pairs, row order, dropout.

A draw is a function of its key and counter, never of earlier draws, so any host can compute any part of any batch.
NumPy, TensorFlow and JAX run the same integer operations and get the same bits. The right shift is a parameter, because
the libraries spell it differently. The mixer is "lowbias32" by Chris Wellons (two multiply-xorshift rounds).
"""

import math
import operator
import zlib

import numpy as np

# The purposes of draws of the package, each with its number. Two purposes never share a key, and a new one gets a new
# number, so that it changes no other draw.
PURPOSE = {
    "target_length": 0,
    "sentences_in_a": 1,
    "random_document": 2,
    "random_start": 3,
    "random_pair": 4,
    "truncate": 5,
    "order": 6,
    "choose": 7,
    "replace": 8,
    "random_token": 9,
    "dropout": 10,
    "swap": 11,
    "packed_order": 14,
    "row": 15,
    "cuts": 16,
    "batches": 17,
    "span_length": 18,
    "parts": 19,
    "sample": 20,
    "draws": 21,
    "evaluation": 22,
    "mixture": 23,
    "step_draws": 24,
}

GOLDEN = np.uint32(0x9E3779B9)
ROUNDS = 4  # of the Feistel network in `shuffle`


def mix(x, shift=operator.rshift):
    """Hashes uint32[...] -> uint32[...] by a bijection; flipping an input bit flips about half of the output bits."""
    x = (x ^ shift(x, np.uint32(16))) * np.uint32(0x7FEB352D)
    x = (x ^ shift(x, np.uint32(15))) * np.uint32(0x846CA68B)
    return x ^ shift(x, np.uint32(16))


def fold(key, counter, shift=operator.rshift):
    """Derives a key from a key and a counter, uint32 arrays that broadcast. Different counters give different keys."""
    return mix(key * GOLDEN + counter, shift)


def key(*numbers) -> np.uint32:
    """Returns a scalar key for Python integers such as seed, purpose, phase and epoch."""
    state = np.full(1, GOLDEN)
    for number in numbers:
        for word in (number & 0xFFFFFFFF, (number >> 32) & 0xFFFFFFFF):
            state = fold(state, np.uint32(word))
    return state[0]


# The key of evaluations. It follows from no seed, so that runs of other seeds are compared on the same draws.
EVALUATION = key(PURPOSE["evaluation"])


def purpose(name: str) -> np.uint32:
    """Returns the number of a purpose: that of PURPOSE, or for other names a hash, which is 2**31 or more."""
    return np.uint32(PURPOSE.get(name, zlib.crc32(name.encode()) | 1 << 31))


def below(bits, bound):
    """Maps uint32[...] to int64[...] in [0, bound), in NumPy; the bias is less than bound / 2**32."""
    product = bits.astype(np.uint64) * np.asarray(bound).astype(np.uint64)
    return (product >> np.uint64(32)).astype(np.int64)


def uniform(bits):
    """Maps uint32[...] to float64[...] in [0, 1), in NumPy."""
    return bits * 2.0**-32


def shuffle(numbers: np.ndarray, count: int, key: np.ndarray) -> np.ndarray:
    """Permutes the integers below `count`: int64[...] in [0, count) -> int64[...] in [0, count); each key gives another
    permutation.

    A Feistel network mixes the two digits of each number in bases whose product is at least `count`. A result of
    `count` or more is permuted again until it is below `count` (cycle walking).
    """
    left_base = math.isqrt(count - 1) + 1
    right_base = -(-count // left_base)
    round_keys = np.split(fold(key, np.arange(2 * ROUNDS, dtype=np.uint32)), 2 * ROUNDS)
    shuffled = np.array(numbers, np.int64).reshape(-1)
    outside = np.arange(shuffled.size)
    while outside.size:
        left, right = np.divmod(shuffled[outside], right_base)
        for left_key, right_key in zip(round_keys[::2], round_keys[1::2], strict=True):
            left = (left + below(fold(left_key, right.astype(np.uint32)), left_base)) % left_base
            added = below(fold(right_key, left.astype(np.uint32)), right_base)
            right = (right + added) % right_base
        shuffled[outside] = left * right_base + right
        outside = outside[shuffled[outside] >= count]
    return shuffled.reshape(np.shape(numbers))
