"""Fingerprints of ids: of documents, sentences and shingles. Equal ids give equal ones on any machine, in any version.

Sentences and shingles are hashed many at a time: the sum of their tokens' mixed (id, position), mixed again. With 64
bits, two of a billion different sentences are taken for one with a probability of 3 %.
"""

import hashlib

import numpy as np

GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def mix(x: np.ndarray) -> np.ndarray:
    """uint64[...] -> uint64[...]: the finalizer of SplitMix64 (Steele, Lea and Flood 2014), a bijection."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def documents(tokens: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """uint64[len(ends), 2]: BLAKE2b of each document's ids; `ends` is where each document ends in `tokens`."""
    parts = np.split(tokens.astype("<u4"), ends[:-1]) if len(ends) else []
    digests = (hashlib.blake2b(part, digest_size=16).digest() for part in parts)
    return np.frombuffer(b"".join(digests), ">u8").astype(np.uint64).reshape(-1, 2)


def sentences(tokens: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """uint64[len(lengths)]: a hash of each sentence's ids; no length is 0."""
    if not len(lengths):
        return np.zeros(0, np.uint64)
    starts = np.cumsum(lengths, dtype=np.int64) - lengths
    places = np.arange(1, len(tokens) + 1) - np.repeat(starts, lengths)
    mixed = mix(tokens.astype(np.uint64) + places.astype(np.uint64) * GOLDEN)
    return mix(np.add.reduceat(mixed, starts))


def windows(tokens: np.ndarray, size: int) -> np.ndarray:
    """uint64[max(0, len(tokens) - size + 1)]: a hash of every `size` consecutive ids."""
    number = max(0, len(tokens) - size + 1)
    tokens = tokens.astype(np.uint64)
    places = np.arange(1, size + 1, dtype=np.uint64) * GOLDEN
    total = np.zeros(number, np.uint64)
    for place, salt in enumerate(places):
        total += mix(tokens[place : place + number] + salt)
    return mix(total)


def rows(values: np.ndarray, salt: int) -> np.ndarray:
    """uint64[N]: a hash of each row of unsigned integers [N, R]; different salts, different hashes."""
    places = (np.arange(values.shape[1], dtype=np.uint64) + np.uint64(1 + (salt << 16))) * GOLDEN
    return mix(mix(values.astype(np.uint64) + places).sum(axis=1))
