"""A model to decode from, whose logits are a random function of the prefix, and what it says of all hypotheses."""

import math
from itertools import count

import jax.numpy as jnp
import numpy as np

from bert_jax import prng
from bert_jax.layers.dense import MASKED

SHARPNESS = 6  # logits are uniform from 0 to this number


def start(rows) -> dict:
    """Returns the cache of rows int32[B]: each number has other logits."""
    return {"hash": jnp.asarray(rows).astype(jnp.uint32), "positions": jnp.zeros_like(rows)}


def step_of(vocabulary: int, padded: int | None = None):
    """Returns the step of a model. padded: the size of the vocabulary with padding."""

    def step(tokens, cache):
        state = prng.fold(cache["hash"], tokens.astype(jnp.uint32))
        logits = logits_of(state, vocabulary)
        padding = ((0, 0), (0, (padded or vocabulary) - vocabulary))
        logits = jnp.pad(logits, padding, constant_values=MASKED)
        return logits, {"hash": state, "positions": cache["positions"] + 1}

    return step


def logits_of(state, vocabulary: int):
    """Returns float32[B, V] for the hashes uint32[B] of prefixes, in NumPy or JAX."""
    bits = prng.fold(state[:, None], np.arange(vocabulary, dtype=np.uint32))
    return (bits >> np.uint32(8)).astype(np.float32) * np.float32(SHARPNESS / 2**24)


def next_log_probs(row: int, prefix, vocabulary: int) -> np.ndarray:
    """Returns float64[V] of the next token after a prefix, which begins with the first input."""
    state = np.uint32([row])
    for token in prefix:
        state = prng.fold(state, np.uint32(token))
    logits = logits_of(state, vocabulary)[0].astype(np.float64)
    return logits - np.log(np.exp(logits).sum())


def argmax_path(row: int, first: int, end: int, vocabulary: int, limit: int) -> list[int]:
    tokens = [first]
    for _ in range(limit):
        tokens.append(int(next_log_probs(row, tokens, vocabulary).argmax()))
        if tokens[-1] == end:
            break
    return tokens[1:]


def all_paths(row: int, first: int, end: int, vocabulary: int, limit: int):
    """Yields (tokens, log-probability, whether they end) of all hypotheses that end, or are as long as the limit."""
    unfinished = [((first,), 0.0)]
    for length in count(1):
        grown = []
        for tokens, total in unfinished:
            for token, value in enumerate(next_log_probs(row, tokens, vocabulary)):
                grown.append(((*tokens, token), total + value))
        unfinished = []
        for tokens, total in grown:
            if tokens[-1] == end or length == limit:
                yield tokens[1:], total, tokens[-1] == end
            else:
                unfinished.append((tokens, total))
        if not unfinished:
            return


def best_paths(paths, alpha: float, rule: str) -> list[tuple[float, tuple]]:
    """Returns (score, tokens) of the paths that a rule finishes, the best first."""
    scored = []
    for tokens, total, is_ended in paths:
        size = len(tokens)
        if rule == "transformers":
            scored.append((total / math.pow(size, alpha), tokens))
        elif is_ended:
            scored.append((total / math.pow((5 + size) / 6, alpha), tokens))
    return sorted(scored, reverse=True)


def hypotheses(decoded, row: int) -> list[tuple[float, tuple]]:
    """Returns (score, tokens) of a row of `Decoded`, without those that were not found."""
    tokens, lengths, scores, _ = (np.asarray(array[row]) for array in decoded)
    pairs = []
    for ids, length, score in zip(tokens, lengths, scores, strict=True):
        assert not ids[length:].any()
        assert (length == 0) == (score == -np.inf)
        if length:
            pairs.append((float(score), tuple(ids[:length].tolist())))
    return pairs
