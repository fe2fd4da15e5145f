"""Decoding: greedy, by drawn tokens and by beam search, as pure functions of a model's `step` and of a cache.

A model decodes by `step(tokens int32[B N], cache) -> (logits float32[B N, V], cache)`. The cache is a pytree, which the
model's `start(batch, length)` returns with room for `length` tokens, the prompt's among them; every array in it has the
rows B as its first axis. `step` appends a token to each row and returns the logits of the next one. A beam search calls
it with a token of each of the N hypotheses of a row. It repeats and selects the arrays of the cache by hypotheses, but
see `BranchedCache`.

`greedy`, `follow` and `beam` are `lax.while_loop`s of fixed shapes, which end early when all rows have ended. Attention
reads all of a cache, and most texts are short: what is made of a `Cache` and `Branches` has room for N rooms(T)[0]
tokens, and grows for the next loop. Another cache needs room for T tokens of each hypothesis.

The result of a row depends neither on other rows nor on the mesh, and rows stay on their devices. Objectives decode by
these functions; inference/generate.py draws by `draw` in a loop of its own, which shows each token. Log-probabilities
are in nats, float32.

B batch, N hypotheses per row, T tokens at most, V padded vocabulary.
"""

import itertools
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from bert_jax import prng
from bert_jax.layers.attention_spec import Branches, Cache
from bert_jax.layers.dense import MASKED
from bert_jax.parallel import constraints

RULES = ("gnmt", "transformers")
ROOM = 16  # tokens of a hypothesis for which a cache has room at first


class BranchedCache(NamedTuple):
    """A cache of which all hypotheses of a row share a part, such as keys and values: that part is not copied for each
    of them, and a beam search does not select from it; see `attention_spec.Branches`."""

    shared: Any  # arrays [B, ...]
    branches: Any  # arrays [B, ...], or [B N, ...] in a beam search


class Stop(NamedTuple):
    """When a row ends."""

    end: int  # the end token
    length: int  # T
    # int32[B], tokens of each row at most, with the end token, None: T
    limits: jax.Array | None = None


class Cut(NamedTuple):
    """The distribution to draw from: the parts are applied in this order, each as transformers does it."""

    temperature: float = 1.0  # divides the logits; above 0
    top_k: int = 0  # leaves the tokens that are as likely as the k-th, or more; 0: all
    # leaves the smallest set of the likeliest tokens with at least this probability, and what is as likely; 1: all
    top_p: float = 1.0


class Search(NamedTuple):
    """A beam search.

    rule: how a hypothesis of n tokens, with the end token, is finished, and what its log-probability is divided by.
        gnmt: ((5 + n) / 6)^alpha (arXiv:1609.08144, equation 14). Of the 2 N best continuations, all that end are
            finished. If none of a row is finished at its limit, the result is the open hypotheses, with their
            log-probabilities as scores. This is `official/nlp/modeling/ops/beam_search.py` of tf-models-official.
        transformers: n^alpha. Of the 2 N best continuations, the first N are finished if they end or reach the limit.
            This is transformers' beam search with `early_stopping="never"`.
    """

    beams: int  # N
    alpha: float = 0.6  # at least 0
    rule: str = "gnmt"  # of RULES


class Decoded(NamedTuple):
    """Hypotheses, those of a row from the best to the worst. A row with fewer than N has -inf as the other scores."""

    tokens: jax.Array  # int32[B, N, T], with the end token; 0 after it
    lengths: jax.Array  # int32[B, N], with the end token
    scores: jax.Array  # float32[B, N]
    # bool[B], whether the limit ended the row: the best hypothesis has no end token, or an open one is better
    is_cut: jax.Array | None = None


class Beams(NamedTuple):
    """The open hypotheses of each row, from the most to the least probable, and its finished ones."""

    tokens: jax.Array  # int32[B, N, 1 + T], the first input and what follows it
    log_probs: jax.Array  # float32[B, N]
    finished: Decoded


def greedy(step, cache, first, stop: Stop) -> Decoded:
    """Takes the most probable token at each step; see `follow`."""
    return follow(step, cache, first, stop, lambda logits, length: logits.argmax(axis=-1))


def follow(step, cache, first, stop: Stop, choose) -> Decoded:
    """Takes the token int32[B] that choose(logits float32[B, V], length) returns at each step, such as `draw`. Returns
    one hypothesis per row; its score is its log-probability.

    first: int32[B], the first inputs: the begin token, or the last token of a prompt that `start` has read without it.
    length: int32[], the tokens that a row then has.
    """
    limits = _row_limits(first, stop)
    state = Decoded(_start_tokens(first, stop), jnp.zeros_like(limits), jnp.zeros(limits.shape))

    def turn(length, cache, path):
        logits, cache = step(_token_before(path.tokens, length), cache)
        last = choose(logits, length).astype(jnp.int32)
        log_probs = jnp.take_along_axis(_log_softmax(logits), last[:, None])[:, 0]
        tokens = _write(path.tokens, last, length)
        path = Decoded(tokens, path.lengths + 1, path.scores + log_probs)
        return cache, last != stop.end, path

    path = _loop(turn, cache, limits, state, rooms(stop.length))
    return _result(jax.tree.map(lambda array: array[:, None], path), stop)


def draw(logits, number, keys, cut: Cut):
    """Returns int32[B], a token that is drawn for each row, a function of its key.

    number: int32[], that of the token, from 1 on.
    keys: uint32[B].
    """
    keys = prng.fold(keys, jnp.uint32(prng.PURPOSE["sample"]))
    step_keys = prng.fold(keys, number.astype(jnp.uint32))
    counter = jnp.arange(logits.shape[-1], dtype=jnp.uint32)
    noise = gumbel(prng.fold(step_keys[:, None], counter))
    return (cut_logits(logits, cut) + noise).argmax(axis=-1)


def gumbel(bits):
    """Maps uint32[...] to float32[...] with the standard Gumbel distribution.

    The argmax of logits with such noise has the distribution softmax(logits). Large values, which decide, are those of
    small uniform numbers, which float32 resolves to 2^-33.
    """
    uniform = (bits.astype(jnp.float32) + 0.5) * 2.0**-32
    uniform = jnp.minimum(uniform, 1 - 2.0**-24)
    return -jnp.log(-jnp.log1p(-uniform))


def cut_logits(logits, cut: Cut):
    """Returns float32[B, V]: the logits divided by the temperature; -inf for the tokens that `cut` leaves out."""
    logits = logits / cut.temperature
    if cut.top_k:
        logits = _cut_below(logits, jnp.ones_like(logits), min(cut.top_k, logits.shape[-1]))
    if cut.top_p < 1:
        logits = _cut_below(logits, jax.nn.softmax(logits), cut.top_p)
    return logits


def _cut_below(logits, weights, least):
    """Returns the logits, with -inf below the largest one at and above which weights float32[B, V] sum to `least`.

    Its bits are found one by one: on CPUs, to sort a vocabulary of 50,000 takes 20 times as long.
    """
    bits = jax.lax.bitcast_convert_type(logits, jnp.uint32)
    sign = jnp.uint32(1 << 31)
    order = jnp.where(bits < sign, bits | sign, ~bits)  # in the order of the logits

    def add_bit(number, bound):
        larger = bound | (sign >> number.astype(jnp.uint32))
        total = jnp.where(order >= larger, weights, 0).sum(axis=-1, keepdims=True)
        return jnp.where(total >= least, larger, bound)

    bound = jax.lax.fori_loop(0, 32, add_bit, jnp.zeros_like(order[:, :1]))
    return jnp.where(order >= bound, logits, -jnp.inf)


def beam(step, cache, first, stop: Stop, search: Search) -> Decoded:
    """Searches the N hypotheses with the highest scores, and follows the N most probable open ones.

    A row ends when it has N finished hypotheses, and no open one can surpass the last of them at any length. The
    original of gnmt may stop earlier, with fewer than N finished, if no open one can surpass any of them.

    For example, the second turn of a row, with N = 2, the rule gnmt, the tokens a, b and $, the end, and probabilities
    instead of their logarithms:

        open hypotheses      a 0.50, b 0.40; none is finished
        continuations        aa 0.05, ab 0.25, a$ 0.20, ba 0.36, bb 0.03, b$ 0.01
        the 2 N best         ba 0.36, ab 0.25, a$ 0.20, aa 0.05; their parents are the hypotheses 1, 0, 0, 0
        finished by now      a$ 0.20 / length_penalty(2)
        open for the next    ba 0.36, ab 0.25, with the caches of their parents, 1 and 0

    The row goes on, because it has one finished hypothesis instead of two.

    first: as in `follow`.
    """
    count = search.beams
    limits = _row_limits(first, stop)
    cache = _map_own(partial(jnp.repeat, repeats=count, axis=0), cache)
    tokens = jnp.repeat(_start_tokens(first, stop)[:, None], count, axis=1)
    impossible = jnp.full(tokens.shape[:2], -jnp.inf)
    none_finished = Decoded(
        jnp.zeros_like(tokens), jnp.zeros_like(impossible, jnp.int32), impossible
    )
    # The N hypotheses of a row are the same at first, so all but one are impossible.
    state = Beams(tokens, impossible.at[:, 0].set(0), none_finished)

    def highest_reachable(log_probs):
        """Returns float32[B], a bound of what the open hypotheses can score: that of the best one at its limit."""
        return log_probs[:, 0] / length_penalty(limits, search)

    def turn(length, cache, beams):
        logits, cache = step(_token_before(beams.tokens, length).reshape(-1), cache)
        log_probs, parents, last = _best_continuations(beams.log_probs, logits)
        tokens = _write(_select(beams.tokens, parents), last, length)
        is_end = last == stop.end
        is_finished = is_end
        if search.rule == "transformers":
            is_finished |= (length == limits)[:, None]
            is_finished &= jnp.arange(2 * count) < count  # the first N
        scores = jnp.where(is_finished, log_probs / length_penalty(length, search), -jnp.inf)
        ended = Decoded(tokens, jnp.full_like(last, length), scores)
        # The N best of the N that were finished before, and of those that are finished now.
        finished = jax.tree.map(_join, beams.finished, ended)
        _, order = _top_k(finished.scores, count)
        finished = _select(finished, order)
        # The N most probable of those that do not end: at least N, as each hypothesis has one continuation that ends.
        open_log_probs, order = _top_k(jnp.where(is_end, -jnp.inf, log_probs), count)
        cache = _reorder(cache, _select(parents, order))
        can_improve = highest_reachable(open_log_probs) > finished.scores[:, -1]
        return cache, can_improve, Beams(_select(tokens, order), open_log_probs, finished)

    tokens, log_probs, finished = _loop(turn, cache, limits, state, rooms(stop.length), count)
    is_cut = highest_reachable(log_probs) > finished.scores[:, 0]
    if search.rule == "gnmt":
        lengths = jnp.where(log_probs > -jnp.inf, limits[:, None], 0)
        has_finished = finished.scores[:, 0] > -jnp.inf
        finished = _choose_rows(has_finished, finished, Decoded(tokens, lengths, log_probs))
    return _result(finished, stop, is_cut)


def length_penalty(length, search: Search):
    """Returns what the log-probability of a hypothesis of length int32[...] is divided by, float32[...]."""
    if search.rule == "gnmt":
        return ((5 + length) / 6) ** search.alpha
    return length.astype(jnp.float32) ** search.alpha


def _best_continuations(log_probs, logits):
    """Returns the 2 N most probable continuations of the open hypotheses of a row: their log-probabilities, the
    hypothesis that each continues, and its token, each [B, 2 N].

    log_probs: float32[B, N].
    logits: float32[B N, V].
    """
    rows, count = log_probs.shape
    continued = jnp.where(logits > MASKED / 2, _log_softmax(logits), -jnp.inf)
    continued = log_probs[..., None] + continued.reshape(rows, count, -1)
    best, indices = _top_k(continued.reshape(rows, -1), 2 * count)
    parents, tokens = jnp.divmod(indices, logits.shape[-1])
    return best, parents, tokens


def _select(arrays, order):
    """Selects the hypotheses order int32[B, N] of each row, from a tree of arrays [B, M, ...]."""

    def select_of_row(array, order):
        return array.at[order].get(mode="promise_in_bounds")

    return jax.tree.map(lambda array: jax.vmap(select_of_row)(array, order), arrays)


def _reorder(cache, parents):
    """Selects the cache of the hypotheses parents int32[B, N] of each row, from a tree of arrays [B N, ...]."""

    def reorder(array):
        by_row = array.reshape(*parents.shape, *array.shape[1:])
        return _select(by_row, parents).reshape(array.shape)

    return _map_own(reorder, cache)


def _map_own(function, cache):
    """Applies a function to the arrays of a cache that a row has for each hypothesis."""
    if isinstance(cache, BranchedCache):
        return cache._replace(branches=jax.tree.map(function, cache.branches))
    return jax.tree.map(function, cache)


def _join(first, second):
    return jnp.concatenate([first, second], axis=1)


# --- What all of them share -----------------------------------------------------------------------


def rooms(length: int) -> list[int]:
    """Returns the tokens of a hypothesis for which a cache has room in each loop: ROOM, twice as many, and so on, at
    last `length`, such as 16, 32, 64, 100 for 100. Each loop is compiled by itself."""
    sizes = []
    size = ROOM
    while 3 * size <= 2 * length:
        sizes.append(size)
        size *= 2
    return [*sizes, length]


def _grow(cache, length: int):
    """Returns the cache with room for `length` more tokens of each row."""

    def is_growing(part):
        return isinstance(part, Cache | Branches)

    def grow(part):
        return part.grow(length) if is_growing(part) else part

    return jax.tree.map(grow, cache, is_leaf=is_growing)


def _loop(turn, cache, limits, state, sizes: list[int], count: int = 1):
    """Repeats turn(length, cache, state) -> (cache, is_open, state) until no row is open; returns the state.

    length: int32[], the tokens that a row has after the turn.
    limits: int32[B], the largest length of each row.
    is_open: bool[B]. A row that has ended keeps its part of the state, a tree of arrays [B, ...].
    sizes: the lengths up to which the cache has room, at first and each time that it has grown.
    count: hypotheses of a row.
    """

    def advance(carry):
        length, cache, is_open, state = carry
        cache, can_continue, new_state = turn(length, cache, state)
        state = _choose_rows(is_open, new_state, state)
        is_open &= can_continue & (length < limits)
        return length + 1, cache, is_open, jax.tree.map(constraints.stream, state)

    carry = jnp.int32(1), cache, limits > 0, state
    for before, size in itertools.pairwise([sizes[0], *sizes]):

        def can_advance(carry, size=size):
            length, _, is_open, _ = carry
            return is_open.any() & (length <= size)

        length, cache, is_open, state = carry
        cache = _grow(cache, (size - before) * count)
        carry = jax.lax.while_loop(can_advance, advance, (length, cache, is_open, state))
    return carry[-1]


def _choose_rows(is_first, first, second):
    """Returns trees of arrays [B, ...]: rows of the first where is_first, bool[B], else of the second."""

    def choose(first, second):
        return jnp.where(is_first.reshape(-1, *[1] * (first.ndim - 1)), first, second)

    return jax.tree.map(choose, first, second)


def _row_limits(first, stop: Stop):
    """Returns int32[B]: the tokens of each row at most."""
    limits = jnp.full(first.shape, stop.length, jnp.int32)
    if stop.limits is None:
        return limits
    return jnp.clip(stop.limits, 0, limits)


def _start_tokens(first, stop: Stop):
    """Returns int32[B, 1 + T]: the first input of each row, and room for what follows it."""
    return jnp.pad(first.astype(jnp.int32)[:, None], ((0, 0), (0, stop.length)))


def _token_before(tokens, length):
    return jax.lax.dynamic_index_in_dim(tokens, length - 1, axis=-1, keepdims=False)


def _write(tokens, last, length):
    return jax.lax.dynamic_update_index_in_dim(tokens, last, length, axis=-1)


def _top_k(values, count):
    """Returns the largest of values[B, M] and their indices, [B, count]; of equal ones the first comes first."""
    return constraints.map_rows(partial(jax.lax.top_k, k=count))(values)


def _log_softmax(logits):
    return jax.nn.log_softmax(logits.astype(jnp.float32))


def _result(hypotheses: Decoded, stop: Stop, is_cut=False) -> Decoded:
    """Removes the first input from the tokens, and what is not of a hypothesis.

    is_cut: bool[B], whether an open hypothesis is better.
    """
    tokens = hypotheses.tokens[..., 1:]
    is_part = jnp.arange(tokens.shape[-1]) < hypotheses.lengths[..., None]
    is_cut |= ~(is_part & (tokens == stop.end))[:, 0].any(axis=-1)
    return hypotheses._replace(tokens=jnp.where(is_part, tokens, 0), is_cut=is_cut)
