"""A TPU kernel for attention over whole rows, with attention dropout.

BERT's rows are short: the L x L scores of a head fit into a core's vector memory. So the softmax is computed at once
rather than block by block, and only queries, keys and values are saved for the backward pass.

The kernel reads [B, L, D] in the layout that the preceding matrix products write. 128 lanes hold several heads. Instead
of splitting them, the kernel sets the lanes of the other heads to zero. That costs no more, because the matrix units
are as wide as the lanes.

B batch, L length, M memory length, D width, K head size, R rows per kernel step.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from bert_jax import prng
from bert_jax.models import layers

LANES = 128  # of a TPU's vector registers
LONGEST = 512  # tokens per row: float32 scores take 1 MiB of a core's 16 MiB of vector memory
TOKENS = 512  # per kernel step, which costs a third of a microsecond even if it does nothing


class Drop(NamedTuple):
    """The dropout mask of this device's part of [B, H, L, M], equal to that of `layers.dropout` on the whole array."""

    keys: jax.Array  # uint32[B]
    head: jax.Array  # int32[1], index of this device's first head among all heads


@partial(jax.custom_vjp, nondiff_argnums=(5, 6, 7, 8))
def attend(
    q_BLD,
    k_BMD,
    v_BMD,
    sequence_ids,
    drop: Drop,
    size: int,
    rate: float,
    causal: bool,
    interpret: bool,
):
    """Returns [B, L, D]: for each head of `size` lanes, dropout(softmax(q k^T)) v.

    sequence_ids int32[B, L]: a token attends to the tokens with its own id, if `causal` to no later one. rate: of
    dropout. interpret: whether Pallas emulates the kernel, which works on any device.
    """
    vectors = q_BLD, k_BMD, v_BMD
    return call(_forward_kernel, 1, vectors, sequence_ids, drop, size, rate, causal, interpret)[0]


def _forward(q, k, v, *others):
    return attend(q, k, v, *others), (q, k, v, *others[:2])


def _backward(size, rate, causal, interpret, saved, gradient):
    *vectors, sequence_ids, drop = saved
    vectors = *vectors, gradient
    options = size, rate, causal, interpret
    gradients = call(_backward_kernel, 3, vectors, sequence_ids, drop, *options)
    return *gradients, None, None


attend.defvjp(_forward, _backward)


def call(kernel, results: int, arrays, sequence_ids, drop: Drop, size, rate, causal, interpret):
    """Runs a kernel over all rows and all groups of heads that share 128 lanes; returns `results` arrays [B, L, D]."""
    batch, length, width = arrays[0].shape
    rows = rows_at_once(batch, length)
    vectors = pl.BlockSpec((rows, length, LANES), lambda i, j: (i, 0, j))
    q_ids = pl.BlockSpec((rows, length, 1), lambda i, j: (i, 0, 0))
    k_ids = pl.BlockSpec((rows, 1, length), lambda i, j: (i, 0, 0))
    scalars = pl.BlockSpec(memory_space=pltpu.SMEM)
    like = jax.ShapeDtypeStruct(arrays[0].shape, arrays[0].dtype)
    function = partial(kernel, rows=rows, size=size, rate=rate, causal=causal)
    # Each head has 2 matrix products forward and 5 backward, over all lanes; a float32 product is six of bfloat16.
    products = (5 if results == 3 else 2) * (6 if like.dtype == jnp.float32 else 1)
    heads = batch * width // size
    moved = (len(arrays) + results) * like.size * like.dtype.itemsize
    cost = pl.CostEstimate(
        flops=heads * products * 2 * length**2 * LANES,
        transcendentals=heads * length**2,
        bytes_accessed=moved,
    )
    return pl.pallas_call(
        function,
        grid=(batch // rows, width // LANES),
        in_specs=[scalars, scalars, q_ids, k_ids, *[vectors] * len(arrays)],
        out_specs=[vectors] * results,
        out_shape=[like] * results,
        interpret=interpret,
        cost_estimate=cost,
        name=f"rows{kernel.__name__}",
    )(*drop, sequence_ids[:, :, None], sequence_ids[:, None, :], *arrays)


def rows_at_once(batch: int, length: int) -> int:
    """Returns the rows per kernel step: a divisor of the batch."""
    return next(rows for rows in range(max(1, TOKENS // length), 0, -1) if batch % rows == 0)


def _forward_kernel(keys, first, q_ids, k_ids, q, k, v, out, *, rows: int, size: int, rate, causal):
    for row in range(rows):
        total = jnp.zeros(q.shape[1:], jnp.float32)
        for head, own in heads_of(size, first[0]):
            query, others = q[row] * own, (row, head, rate, causal)
            probabilities, kept = weights(keys, q_ids, k_ids, query, k[row], *others)
            total += product(dropped(probabilities, kept, rate), v[row] * own)
        out[row] = total.astype(out.dtype)


def _backward_kernel(
    keys,
    first,
    q_ids,
    k_ids,
    q,
    k,
    v,
    gradient,
    d_q,
    d_k,
    d_v,
    *,
    rows: int,
    size: int,
    rate: float,
    causal: bool,
):
    for row in range(rows):
        totals = [jnp.zeros(q.shape[1:], jnp.float32) for _ in range(3)]
        for head, own in heads_of(size, first[0]):
            query, along_head = q[row] * own, gradient[row] * own
            others = row, head, rate, causal
            probabilities, kept = weights(keys, q_ids, k_ids, query, k[row], *others)
            d_probabilities = product(along_head, v[row], transposed=True).astype(q.dtype)
            d_probabilities = dropped(d_probabilities, kept, rate).astype(jnp.float32)
            weighted = probabilities.astype(jnp.float32) * d_probabilities
            d_scores = weighted - probabilities * weighted.sum(-1, keepdims=True)
            d_scores = d_scores.astype(q.dtype)
            totals[0] += product(d_scores, k[row] * own)
            totals[1] += product(d_scores.T, query)
            totals[2] += product(dropped(probabilities, kept, rate).T, along_head)
        for output, total in zip((d_q, d_k, d_v), totals, strict=True):
            output[row] = total.astype(output.dtype)


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


def weights(keys, q_ids, k_ids, query, key, row: int, head, rate: float, causal: bool):
    """Returns the probabilities [L, M] in the dtype of the query, and bool[L, M], those that dropout keeps, or None."""
    scores = product(query, key, transposed=True)
    position, other = (jax.lax.broadcasted_iota(jnp.int32, scores.shape, axis) for axis in (0, 1))
    seen = q_ids[row] == k_ids[row]
    seen = seen & (other <= position) if causal else seen
    scores = jnp.where(seen, scores, layers.MASKED)
    scores = jnp.exp(scores - scores.max(-1, keepdims=True))
    probabilities = (scores / scores.sum(-1, keepdims=True)).astype(query.dtype)
    if not rate:
        return probabilities, None
    length = scores.shape[0]
    counter = head * length * length + position * length + other
    bits = prng.fold(keys[pl.program_id(0) * q_ids.shape[0] + row], counter.astype(jnp.uint32))
    return probabilities, bits >= jnp.uint32(round(rate * 2**32))


def dropped(x, kept, rate: float):
    """Returns x with dropout applied as in `layers.dropout`; `kept` is its mask, or None for no dropout."""
    return x if kept is None else jnp.where(kept, x * jnp.asarray(1 / (1 - rate), x.dtype), 0)
