"""A TPU kernel for attention, full or local, with rotary positions and attention dropout.

A kernel step has whole rows, and computes a block of queries at a time: its scores with all keys, or with those near
it, fit into a core's vector memory. So the softmax is computed at once rather than block by block of keys, and only
queries, keys and values are saved for the backward pass.

The kernel reads [B, L, D] in the layout that the preceding matrix products write. 128 lanes hold several heads. Instead
of splitting them, the kernel sets the lanes of the other heads to zero. That costs no more, because the matrix units
are as wide as the lanes.

B batch, L length, M memory length, D width, K head size, R rows per kernel step.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from bert_jax import prng
from bert_jax.layers.dense import MASKED

LANES = 128  # of a TPU's vector registers
# Queries per block of full attention, at most: float32 scores with 1,024 keys take 2 MiB.
BLOCK = 512
LONGEST = 1024, 8192  # tokens of the longest row, of full and of local attention
TOKENS = 512  # per kernel step, which costs a third of a microsecond even if it does nothing
# Vector memory that a kernel may use: per token of a row and score of a block in bfloat16, but no less than by default.
# A v5p has the least of the TPUs from v5 on, 64 MiB; LONGEST tokens compile for it.
BYTES_PER_TOKEN, BYTES_PER_SCORE, LEAST_MEMORY = 7936, 48, 16 << 20


class Drop(NamedTuple):
    """The dropout mask of this device's part of [B, H, L, M], equal to that of `dropout.dropout` on the whole array."""

    keys: jax.Array  # uint32[B]
    head: jax.Array  # int32[1], index of this device's first head among all heads


class Options(NamedTuple):
    """What a kernel is compiled for."""

    size: int  # lanes of a head
    rate: float  # of dropout
    causal: bool  # whether a token attends to no later one
    window: int  # if not 0, a token attends to at most half as many tokens on each side
    interpret: bool  # whether Pallas emulates the kernel, which works on any device


@partial(jax.custom_vjp, nondiff_argnums=(6,))
def attend(q_BLD, k_BMD, v_BMD, sequence_ids, angles: tuple, drop: Drop, options: Options):
    """Returns [B, L, D]: for each head of `size` lanes, dropout(softmax(q k^T)) v.

    sequence_ids int32[B, L]: a token attends to the tokens with its own id. angles: those of `rotary.angles`, by which
    queries and keys are rotated, or none.
    """
    vectors = q_BLD, k_BMD, v_BMD
    return call(_forward_kernel, 1, vectors, sequence_ids, angles, drop, options)[0]


def _forward(q, k, v, *others):
    return attend(q, k, v, *others), (q, k, v, *others[:3])


def _backward(options, saved, gradient):
    *vectors, sequence_ids, angles, drop = saved
    vectors = *vectors, gradient
    gradients = call(_backward_kernel, 3, vectors, sequence_ids, angles, drop, options)
    return *gradients, None, None, None


attend.defvjp(_forward, _backward)


def call(kernel, results: int, vectors, sequence_ids, angles, drop: Drop, options: Options):
    """Runs a kernel over all rows and all groups of heads that share 128 lanes; returns `results` arrays [B, L, D]."""
    batch, length, width = vectors[0].shape
    rows = rows_at_once(batch, length)
    queries, keys = block_shape(length, options.window)
    # As many keys on each side of a block, except at the ends of the row.
    starts = np.arange(0, length, queries) - (keys - queries) // 2
    starts = np.clip(starts, 0, length - keys).astype(np.int32)
    k_ids = jnp.stack([sequence_ids[:, start : start + keys] for start in starts], 1)
    scalars = pl.BlockSpec(memory_space=pltpu.SMEM)
    # Those of the next row are fetched early, if there is memory for them.
    mode = pl.Buffered(2 if length <= LONGEST[0] else 1)
    of_row = [
        pl.BlockSpec((rows, *shape), lambda i, j: (i, 0, 0), pipeline_mode=mode)
        for shape in ((length, 1), k_ids.shape[1:], *[(length, LANES)] * len(angles))
    ]
    by_group = pl.BlockSpec((rows, length, LANES), lambda i, j: (i, 0, j))
    like = jax.ShapeDtypeStruct(vectors[0].shape, vectors[0].dtype)
    sums = [pltpu.VMEM((length, LANES), jnp.float32)] * (results - 1)
    memory = rows * length * BYTES_PER_TOKEN + queries * keys * BYTES_PER_SCORE
    memory = max(LEAST_MEMORY, memory * like.dtype.itemsize // 2)
    # Each head has 2 matrix products forward and 5 backward, over all lanes; a float32 product is six of bfloat16.
    products = (5 if results == 3 else 2) * (6 if like.dtype == jnp.float32 else 1)
    pairs = batch * width // options.size * length * keys
    operands = *drop, starts, sequence_ids[:, :, None], k_ids, *by_lanes(angles), *vectors
    moved = sum(x.size * x.dtype.itemsize for x in (*operands, *[like] * results))
    cost = pl.CostEstimate(
        flops=products * 2 * pairs * LANES, transcendentals=pairs, bytes_accessed=moved
    )
    return pl.pallas_call(
        partial(kernel, options=options),
        grid=(batch // rows, width // LANES),
        in_specs=[*[scalars] * 3, *of_row, *[by_group] * len(vectors)],
        out_specs=[by_group] * results,
        out_shape=[like] * results,
        scratch_shapes=[pltpu.VMEM((length, LANES), like.dtype), *sums],
        interpret=options.interpret,
        cost_estimate=cost,
        compiler_params=pltpu.CompilerParams(vmem_limit_bytes=memory),
        name=f"rows{kernel.__name__}",
    )(*operands)


def rows_at_once(batch: int, length: int) -> int:
    """Returns the rows per kernel step: a divisor of the batch."""
    return next(rows for rows in range(max(1, TOKENS // length), 0, -1) if batch % rows == 0)


def block_shape(length: int, window: int) -> tuple[int, int]:
    """Returns the queries of a block, and the keys whose scores with all of them are computed."""
    if window:
        return LANES, min(length, -(-(LANES + window) // LANES) * LANES)
    return block_size(length, BLOCK), length


def block_size(length: int, longest: int, step: int = LANES) -> int:
    """Returns the tokens per block: the whole row up to `longest`, otherwise as many as divide it, in steps of `step`.

    Large blocks pay: splash's kernels have less than five times the instructions for blocks of 512 as for blocks of
    128, for 16 times the work (numbers in benchmarks/LOG.md).
    """
    return next(size for size in range(longest, 0, -step) if length % size == 0)


def _forward_kernel(keys, first, starts, q_ids, k_ids, *refs, options: Options):
    *angles, q, k, v, out, turned = refs
    for row in range(q.shape[0]):
        turned[...] = turn(k[row], [x[row] for x in angles], options.size)

        def block(number, at, near, row=row):
            query = turn(q[row, at], [x[row, at] for x in angles], options.size)
            key, value = turned[near], v[row, near]
            pairs = Pairs(q_ids[row, at], k_ids[row, number], at.start, near.start)
            seen = visible(pairs, options)
            total = jnp.zeros(query.shape, jnp.float32)
            for head, own in heads_of(options.size, first[0]):
                probabilities = weights(query * own, key, seen)
                kept = survivors(keys, row, head, pairs, q.shape, options.rate)
                probabilities = dropped(probabilities, kept, options.rate).astype(q.dtype)
                total += product(probabilities, value * own)
            out[row, at] = total.astype(out.dtype)

        each_block(block, starts, q_ids, k_ids)


def _backward_kernel(keys, first, starts, q_ids, k_ids, *refs, options: Options):
    *angles, q, k, v, gradient, d_q, d_k, d_v, turned, d_key, d_value = refs
    for row in range(q.shape[0]):
        turns = [x[row] for x in angles]
        turned[...] = turn(k[row], turns, options.size)
        d_key[...] = jnp.zeros_like(d_key)
        d_value[...] = jnp.zeros_like(d_value)

        def block(number, at, near, row=row):
            turns = [x[row, at] for x in angles]
            query, along = turn(q[row, at], turns, options.size), gradient[row, at]
            key, value = turned[near], v[row, near]
            pairs = Pairs(q_ids[row, at], k_ids[row, number], at.start, near.start)
            seen = visible(pairs, options)
            totals = [jnp.zeros(x.shape, jnp.float32) for x in (query, key, key)]
            for head, own in heads_of(options.size, first[0]):
                query_own, along_own = query * own, along * own
                probabilities = weights(query_own, key, seen)
                kept = survivors(keys, row, head, pairs, q.shape, options.rate)
                d_probabilities = product(along_own, value, transposed=True)
                d_probabilities = dropped(d_probabilities, kept, options.rate)
                mean = (probabilities * d_probabilities).sum(-1, keepdims=True)
                d_scores = (probabilities * (d_probabilities - mean)).astype(q.dtype)
                probabilities = dropped(probabilities, kept, options.rate).astype(q.dtype)
                totals[0] += product(d_scores, key * own)
                totals[1] += product(d_scores.T, query_own)
                totals[2] += product(probabilities.T, along_own)
            d_q[row, at] = turn(totals[0], turns, options.size, back=True).astype(q.dtype)
            d_key[near] += totals[1]
            d_value[near] += totals[2]

        each_block(block, starts, q_ids, k_ids)
        d_k[row] = turn(d_key[...], turns, options.size, back=True).astype(k.dtype)
        d_v[row] = d_value[...].astype(v.dtype)


def each_block(function: Callable, starts, q_ids, k_ids):
    """Calls function(slice of one block, slice of its queries, slice of its keys) for each block of queries of a row.

    starts: the first key of each block.
    """
    (_, length, _), (_, count, keys) = q_ids.shape, k_ids.shape
    queries = length // count

    def step(number, _=None):
        first_key = pl.multiple_of(starts[number], LANES // 2)
        function(pl.ds(number, 1), pl.ds(number * queries, queries), pl.ds(first_key, keys))

    if count == 1:
        function(pl.ds(0, 1), pl.ds(0, length), pl.ds(0, length))
    else:
        jax.lax.fori_loop(0, count, step, None)


def by_lanes(angles: tuple) -> tuple:
    """Returns the factors float32[B, L, 128] of the lanes, and of the lanes that are half a head away; see `turn`."""
    if not angles:
        return ()
    cosines, sines = angles
    heads = LANES // cosines.shape[-1] // 2
    both = jnp.concatenate([cosines] * 2, -1), jnp.concatenate([-sines, sines], -1)
    return tuple(jnp.tile(x, heads) for x in both)


def turn(x, factors: list, size: int, back: bool = False):
    """Rotates the heads of x[L, 128] as `rotary.rotate`; back: by the opposite angles, for gradients.

    factors: those of `by_lanes`, or none.
    """
    if not factors:
        return x
    wide, half = x.astype(jnp.float32), size // 2
    lanes = jax.lax.broadcasted_iota(jnp.int32, (1, LANES), 1)
    before, after = pltpu.roll(wide, half, 1), pltpu.roll(wide, LANES - half, 1)
    other = jnp.where(lanes % size < half, after, before) * factors[1]
    return (wide * factors[0] + (-other if back else other)).astype(x.dtype)


def heads_of(size: int, first):
    """Yields (index among all heads, mask) of each head of a group; the mask is 1 in its lanes, 0 in the others."""
    first += pl.program_id(1) * (LANES // size)
    lanes = jax.lax.broadcasted_iota(jnp.int32, (1, LANES), 1)
    for head in range(LANES // size):
        own = (lanes >= head * size) & (lanes < (head + 1) * size)
        own = 1 if size == LANES else own.astype(jnp.bfloat16)
        yield first + head, own


def product(a, b, transposed: bool = False):
    """Returns a @ b, or a @ b.T if `transposed`, in float32."""
    # Explicit for bfloat16, too: `jax_default_matmul_precision` may be `highest`, which Pallas rejects for bfloat16.
    precision = jax.lax.Precision.HIGHEST if a.dtype == jnp.float32 else jax.lax.Precision.DEFAULT
    contracted = ((1,), (1,)) if transposed else ((1,), (0,))
    return jax.lax.dot_general(
        a, b, (contracted, ((), ())), precision=precision, preferred_element_type=jnp.float32
    )


class Pairs(NamedTuple):
    """Pairs [L, M] of a block of queries and its keys."""

    q_ids: jax.Array  # int32[L, 1]
    k_ids: jax.Array  # int32[1, M]
    first_query: jax.Array  # its position in the row
    first_key: jax.Array

    def positions(self):
        """Returns the positions of query and key, int32[L, M] each."""
        shape = self.q_ids.shape[0], self.k_ids.shape[1]
        first, second = (jax.lax.broadcasted_iota(jnp.int32, shape, axis) for axis in (0, 1))
        return first + self.first_query, second + self.first_key


def visible(pairs: Pairs, options: Options):
    """Returns bool[L, M]: whether the query attends to the key."""
    seen, (position, other) = pairs.q_ids == pairs.k_ids, pairs.positions()
    seen = seen & (other <= position) if options.causal else seen
    half = options.window // 2
    is_near = (other - (position - half)).astype(jnp.uint32) <= jnp.uint32(2 * half)
    return seen & is_near if half else seen


def weights(query, key, seen):
    """Returns the probabilities float32[L, M]."""
    scores = jnp.where(seen, product(query, key, transposed=True), MASKED)
    scores = jnp.exp(scores - scores.max(-1, keepdims=True))
    return scores * (1 / scores.sum(-1, keepdims=True))


def survivors(keys, row: int, head, pairs: Pairs, shape: tuple, rate: float):
    """Returns bool[L, M], the pairs that dropout keeps; None without dropout. shape: R, L of the step."""
    if not rate:
        return None
    rows, length, _ = shape
    position, other = pairs.positions()
    counter = head * length * length + position * length + other
    bits = prng.fold(keys[pl.program_id(0) * rows + row], counter.astype(jnp.uint32))
    return bits >= jnp.uint32(round(rate * 2**32))


def dropped(x, kept, rate: float):
    """Returns float32 x with dropout as in `dropout.dropout`; `kept` is its mask, or None for no dropout."""
    return x if kept is None else jnp.where(kept, x * (1 / (1 - rate)), 0)
