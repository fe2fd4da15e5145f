"""The counter-based hash behind every random draw: masks, pairs, row order, dropout.

A draw is a function of what it is for, never of what was drawn before it, so any host can make any part of any batch.
The same integer operations run in NumPy, TensorFlow and JAX and give the same bits; where a library writes the shift in
another way, it is passed in. The mixer is the "lowbias32" of Chris Wellons (two multiply-xorshift rounds).
"""

import math
import operator

import numpy as np

# What a draw is for. Two purposes never share a key. "copies" is drawn no more, and keeps the others' numbers.
PURPOSES = (
    "target_length",
    "sentences_in_a",
    "random_document",
    "random_start",
    "random_pair",
    "truncate",
    "order",
    "choose",
    "replace",
    "random_token",
    "dropout",
    "swap",
    "copies",
    "words",
    "packed_order",
)
PURPOSE = {name: number for number, name in enumerate(PURPOSES)}

GOLDEN = np.uint32(0x9E3779B9)
ROUNDS = 4  # of a permutation


def mix(x, shift=operator.rshift):
    """uint32[...] -> uint32[...], a bijection in which every input bit moves about half of the output bits."""
    x = (x ^ shift(x, np.uint32(16))) * np.uint32(0x7FEB352D)
    x = (x ^ shift(x, np.uint32(15))) * np.uint32(0x846CA68B)
    return x ^ shift(x, np.uint32(16))


def fold(key, counter, shift=operator.rshift):
    """A new key from a key and a counter, both uint32 arrays that broadcast: different counters, different keys."""
    return mix(key * GOLDEN + counter, shift)


def key(*numbers) -> np.uint32:
    """A scalar key from Python integers such as seed, purpose, phase and epoch."""
    state = np.full(1, GOLDEN)
    for number in numbers:
        for word in (number & 0xFFFFFFFF, (number >> 32) & 0xFFFFFFFF):
            state = fold(state, np.uint32(word))
    return state[0]


def below(bits, bound):
    """NumPy: uint32[...] -> int64[...] in [0, bound); the bias is under bound / 2**32."""
    return ((bits.astype(np.uint64) * np.asarray(bound).astype(np.uint64)) >> np.uint64(32)).astype(
        np.int64
    )


def uniform(bits):
    """NumPy: uint32[...] -> float64[...] in [0, 1)."""
    return bits * 2.0**-32


def shuffle(numbers: np.ndarray, count: int, key: np.ndarray) -> np.ndarray:
    """int64[...] in [0, count) -> int64[...] in [0, count), a permutation for every key.

    A Feistel network over the digits of a number in two bases whose product is just over `count`;
    what falls beyond `count` walks on until it falls below.
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
            right = (
                right + below(fold(right_key, left.astype(np.uint32)), right_base)
            ) % right_base
        shuffled[outside] = left * right_base + right
        outside = outside[shuffled[outside] >= count]
    return shuffled.reshape(np.shape(numbers))
