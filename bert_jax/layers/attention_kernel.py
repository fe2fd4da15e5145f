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
MAX_LENGTH = 1024  # tokens of the longest row
MAX_LOCAL_LENGTH = 8192  # the same of local attention
TOKENS = 512  # per kernel step, which costs a third of a microsecond even if it does nothing
# Vector memory that a kernel may use: per token of a row and score of a block in bfloat16, but no less than by default.
# A v5p has the least of the TPUs from v5 on, 64 MiB; the longest rows compile for it.
BYTES_PER_TOKEN = 7936
BYTES_PER_SCORE = 48
MIN_MEMORY = 16 << 20


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
    interpret: bool = False  # whether Pallas emulates the kernel, which works on any device


@partial(jax.custom_vjp, nondiff_argnums=(6,))
def attend(q_BLD, k_BMD, v_BMD, ids: tuple, angles: tuple, drop: Drop, options: Options):
    """Returns [B, L, D]: for each head of `size` lanes, dropout(softmax(q k^T)) v. M is L.

    ids: int32[B, L] of the queries, int32[B, M] of the keys. A query attends to the keys with its own id.
    angles: those of `rotary.angles`, by which queries and keys are rotated, or none.
    """
    vectors = q_BLD, k_BMD, v_BMD
    return call(_forward_kernel, 1, vectors, ids, angles, drop, options)[0]


def _forward(*arguments):
    return attend(*arguments), arguments[:-1]


def _backward(options, inputs, gradient):
    *vectors, ids, angles, drop = inputs
    vectors.append(gradient)
    gradients = call(_backward_kernel, 3, vectors, ids, angles, drop, options)
    return *gradients, None, None, None


attend.defvjp(_forward, _backward)


def call(kernel, results: int, vectors, ids, angles, drop: Drop, options: Options):
    """Runs a kernel over all rows and all groups of heads that share 128 lanes; returns `results` arrays [B, L, D]."""
    batch, length, width = vectors[0].shape
    dtype = vectors[0].dtype
    rows = block_size(batch, max(1, TOKENS // length), step=1)
    queries, keys = block_shape(length, options.window)
    # As many keys on each side of a block, except at the ends of the row.
    starts = np.arange(0, length, queries) - (keys - queries) // 2
    starts = np.clip(starts, 0, length - keys).astype(np.int32)
    q_ids, k_ids = ids
    k_ids = jnp.stack([k_ids[:, start : start + keys] for start in starts], 1)
    operands = *drop, starts, q_ids[:, :, None], k_ids, *by_lanes(angles), *vectors
    out_shapes = [jax.ShapeDtypeStruct(vectors[0].shape, dtype)] * results

    # The ids and angles of the next row are fetched early, if there is memory for them.
    mode = pl.Buffered(2 if length <= MAX_LENGTH else 1)
    row_specs = [
        pl.BlockSpec((rows, *shape), lambda i, j: (i, 0, 0), pipeline_mode=mode)
        for shape in ((length, 1), k_ids.shape[1:], *[(length, LANES)] * len(angles))
    ]
    scalar_spec = pl.BlockSpec(memory_space=pltpu.SMEM)
    group_spec = pl.BlockSpec((rows, length, LANES), lambda i, j: (i, 0, j))
    sums = [pltpu.VMEM((length, LANES), jnp.float32)] * (results - 1)
    memory = rows * length * BYTES_PER_TOKEN + queries * keys * BYTES_PER_SCORE
    memory = max(MIN_MEMORY, memory * dtype.itemsize // 2)

    # Each head has 2 matrix products forward and 5 backward, over all lanes; a float32 product is six of bfloat16.
    products = 5 if results == 3 else 2
    if dtype == jnp.float32:
        products *= 6
    pairs = batch * width // options.size * length * keys
    cost = pl.CostEstimate(
        flops=products * 2 * pairs * LANES,
        transcendentals=pairs,
        bytes_accessed=sum(x.size * x.dtype.itemsize for x in (*operands, *out_shapes)),
    )
    return pl.pallas_call(
        partial(kernel, options=options),
        grid=(batch // rows, width // LANES),
        in_specs=[*[scalar_spec] * 3, *row_specs, *[group_spec] * len(vectors)],
        out_specs=[group_spec] * results,
        out_shape=out_shapes,
        scratch_shapes=[pltpu.VMEM((length, LANES), dtype), *sums],
        interpret=options.interpret,
        cost_estimate=cost,
        compiler_params=pltpu.CompilerParams(vmem_limit_bytes=memory),
        name=f"rows{kernel.__name__}",
    )(*operands)


def block_shape(length: int, window: int) -> tuple[int, int]:
    """Returns the queries of a block, and the keys whose scores with all of them are computed."""
    if not window:
        return block_size(length, BLOCK), length
    groups = -(-(LANES + window) // LANES)
    return LANES, min(length, groups * LANES)


def block_size(length: int, longest: int, step: int = LANES) -> int:
    """Returns the tokens per block: the whole row up to `longest`, otherwise as many as divide it, in steps of `step`.
    Likewise the rows of a batch per step of the kernel.

    Large blocks pay: splash's kernels have less than five times the instructions for blocks of 512 as for blocks of
    128, for 16 times the work (numbers in benchmarks/LOG.md).
    """
    return next(size for size in range(longest, 0, -step) if length % size == 0)


def _forward_kernel(keys, first, starts, q_ids, k_ids, *refs, options: Options):
    *angles, q, k, v, out, rotated = refs
    for row in range(q.shape[0]):
        rotated[...] = rotate(k[row], [x[row] for x in angles], options.size)

        def compute_block(number, at, near, row=row):
            query = rotate(q[row, at], [x[row, at] for x in angles], options.size)
            key = rotated[near]
            value = v[row, near]
            pairs = TokenPairs(q_ids[row, at], k_ids[row, number], at.start, near.start)
            visible = find_visible(pairs, options)
            total = jnp.zeros(query.shape, jnp.float32)
            for head, lanes in heads_of(options.size, first[0]):
                probabilities = softmax(query * lanes, key, visible)
                survivors = draw_survivors(keys, row, head, pairs, q.shape, options.rate)
                probabilities = drop_others(probabilities, survivors, options.rate)
                total += product(probabilities.astype(q.dtype), value * lanes)
            out[row, at] = total.astype(out.dtype)

        for_each_block(compute_block, starts, q_ids, k_ids)


def _backward_kernel(keys, first, starts, q_ids, k_ids, *refs, options: Options):
    """Computes the gradients of queries, keys and values, by the blocks of queries of the forward pass.

    In full attention, each block sees all keys. In local attention it sees those near it. For example, a row of 512
    tokens and a window of 128, so that each of 4 blocks of 128 queries sees 256 keys, from `starts` on:

        keys                  0       128     256     384
        queries   0 to 127    [==============]                      keys   0 to 255
        queries 128 to 255        [==============]                  keys  64 to 319
        queries 256 to 383                [==============]          keys 192 to 447
        queries 384 to 511                    [==============]      keys 256 to 511

    A query is in one block, so the block's gradient of it, q_total, is final. A key is seen by several: key 200 by the
    first three. Each adds its part, k_total and v_total, to the sums d_key and d_value, which are written at the end of
    the row.

    The gradient dO of a head's output O = D(P) V, with P = softmax(Q K^T), and D, the dropout, becomes

        dV = D(P)^T dO
        dP = D(dO V^T)              d_probabilities
        dS = P (dP - sum(P dP))     d_scores, of Q K^T; the sum over a query's keys is `mean`
        dQ = dS K
        dK = dS^T Q

    Q and K are rotated, so dQ and dK are rotated back. `lanes` selects the head: it is 0 in the others' lanes.
    """
    *angles, q, k, v, gradient, d_q, d_k, d_v, rotated, d_key, d_value = refs
    for row in range(q.shape[0]):
        row_angles = [x[row] for x in angles]
        rotated[...] = rotate(k[row], row_angles, options.size)
        d_key[...] = jnp.zeros_like(d_key)
        d_value[...] = jnp.zeros_like(d_value)

        def compute_block(number, at, near, row=row):
            block_angles = [x[row, at] for x in angles]
            query = rotate(q[row, at], block_angles, options.size)
            d_out = gradient[row, at]
            key = rotated[near]
            value = v[row, near]
            pairs = TokenPairs(q_ids[row, at], k_ids[row, number], at.start, near.start)
            visible = find_visible(pairs, options)
            q_total, k_total, v_total = (jnp.zeros(x.shape, jnp.float32) for x in (query, key, key))
            for head, lanes in heads_of(options.size, first[0]):
                head_query = query * lanes
                head_d_out = d_out * lanes
                probabilities = softmax(head_query, key, visible)
                survivors = draw_survivors(keys, row, head, pairs, q.shape, options.rate)
                d_probabilities = product(head_d_out, value, transposed=True)
                d_probabilities = drop_others(d_probabilities, survivors, options.rate)
                mean = (probabilities * d_probabilities).sum(-1, keepdims=True)
                d_scores = (probabilities * (d_probabilities - mean)).astype(q.dtype)
                dropped = drop_others(probabilities, survivors, options.rate).astype(q.dtype)
                q_total += product(d_scores, key * lanes)
                k_total += product(d_scores.T, head_query)
                v_total += product(dropped.T, head_d_out)
            q_total = rotate(q_total, block_angles, options.size, back=True)
            d_q[row, at] = q_total.astype(q.dtype)
            d_key[near] += k_total
            d_value[near] += v_total

        for_each_block(compute_block, starts, q_ids, k_ids)
        d_k[row] = rotate(d_key[...], row_angles, options.size, back=True).astype(k.dtype)
        d_v[row] = d_value[...].astype(v.dtype)


def for_each_block(function: Callable, starts, q_ids, k_ids):
    """Calls function(slice of one block, slice of its queries, slice of its keys) for each block of queries of a row.

    starts: the first key of each block.
    """
    length = q_ids.shape[1]
    _, count, keys = k_ids.shape
    queries = length // count

    def step(number, _=None):
        first_key = pl.multiple_of(starts[number], LANES // 2)
        function(pl.ds(number, 1), pl.ds(number * queries, queries), pl.ds(first_key, keys))

    if count == 1:
        function(pl.ds(0, 1), pl.ds(0, length), pl.ds(0, length))
    else:
        jax.lax.fori_loop(0, count, step, None)


def by_lanes(angles: tuple) -> tuple:
    """Returns the factors float32[B, L, 128] of the lanes, and of the lanes that are half a head away; see `rotate`."""
    if not angles:
        return ()
    cosines, sines = angles
    heads = LANES // cosines.shape[-1] // 2
    near = jnp.concatenate([cosines, cosines], -1)
    far = jnp.concatenate([-sines, sines], -1)
    return jnp.tile(near, heads), jnp.tile(far, heads)


def rotate(x, factors: list, size: int, back: bool = False):
    """Rotates the heads of x[L, 128] as `rotary.rotate`.

    factors: those of `by_lanes`, or none.
    back: by the opposite angles, for gradients.
    """
    if not factors:
        return x
    vectors = x.astype(jnp.float32)
    half = size // 2
    lanes = jax.lax.broadcasted_iota(jnp.int32, (1, LANES), 1)
    before = pltpu.roll(vectors, half, 1)
    after = pltpu.roll(vectors, LANES - half, 1)
    far = jnp.where(lanes % size < half, after, before) * factors[1]
    near = vectors * factors[0]
    if back:
        far = -far
    return (near + far).astype(x.dtype)


def heads_of(size: int, first):
    """Yields (index among all heads, mask) of each head of a group; the mask is 1 in its lanes, 0 in the others."""
    first += pl.program_id(1) * (LANES // size)
    lanes = jax.lax.broadcasted_iota(jnp.int32, (1, LANES), 1)
    for head in range(LANES // size):
        if size == LANES:
            mask = 1
        else:
            is_inside = (lanes >= head * size) & (lanes < (head + 1) * size)
            mask = is_inside.astype(jnp.bfloat16)
        yield first + head, mask


def product(a, b, transposed: bool = False):
    """Returns a @ b, or a @ b.T if `transposed`, in float32."""
    # Explicit for bfloat16, too: `jax_default_matmul_precision` may be `highest`, which Pallas rejects for bfloat16.
    precision = jax.lax.Precision.HIGHEST if a.dtype == jnp.float32 else jax.lax.Precision.DEFAULT
    contracted = (1,), (1 if transposed else 0,)
    return jax.lax.dot_general(
        a,
        b,
        (contracted, ((), ())),
        precision=precision,
        preferred_element_type=jnp.float32,
    )


class TokenPairs(NamedTuple):
    """Pairs [L, M] of a block of queries and its keys."""

    q_ids: jax.Array  # int32[L, 1]
    k_ids: jax.Array  # int32[1, M]
    first_query: jax.Array  # its position in the row
    first_key: jax.Array

    def positions(self):
        """Returns the positions of query and key, int32[L, M] each."""
        shape = self.q_ids.shape[0], self.k_ids.shape[1]
        query, key = (jax.lax.broadcasted_iota(jnp.int32, shape, axis) for axis in (0, 1))
        return query + self.first_query, key + self.first_key


def find_visible(pairs: TokenPairs, options: Options):
    """Returns bool[L, M]: whether the query attends to the key."""
    visible = pairs.q_ids == pairs.k_ids
    query, key = pairs.positions()
    if options.causal:
        visible = visible & (key <= query)
    if options.window:
        half = options.window // 2
        is_near = (key - (query - half)).astype(jnp.uint32) <= jnp.uint32(2 * half)
        visible = visible & is_near
    return visible


def softmax(query, key, visible):
    """Returns the probabilities float32[L, M]."""
    scores = jnp.where(visible, product(query, key, transposed=True), MASKED)
    scores = jnp.exp(scores - scores.max(-1, keepdims=True))
    return scores * (1 / scores.sum(-1, keepdims=True))


def draw_survivors(keys, row: int, head, pairs: TokenPairs, shape: tuple, rate: float):
    """Returns bool[L, M], the pairs that dropout keeps; None without dropout. shape: R, L of the step."""
    if not rate:
        return None
    rows, length, _ = shape
    query, key = pairs.positions()
    counter = head * length * length + query * length + key
    bits = prng.fold(keys[pl.program_id(0) * rows + row], counter.astype(jnp.uint32))
    return bits >= jnp.uint32(round(rate * 2**32))


def drop_others(x, survivors, rate: float):
    """Returns float32 x with dropout as in `dropout.dropout`. survivors: those of `draw_survivors`."""
    if survivors is None:
        return x
    return jnp.where(survivors, x * (1 / (1 - rate)), 0)
