"""Attention of whole rows in one kernel for TPUs, dropout of probabilities and all.

Rows of BERT are short: the scores of a head, L x L, lie in a core's own memory. So there is one softmax instead of one
for every block of keys, and nothing but queries, keys and values is kept for the backward pass.

A kernel reads [B, L, D] as the products in front of it write it. 128 lanes of it hold several heads; rather than part
them, the other heads' lanes are made zero, which costs no more: the matrix units are as wide as the lanes.

B batch, L length, M memory length, D width, K head size, R rows at once.
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
LONGEST = 512  # tokens at once; float32 scores of 512 x 512 are a megabyte of the 16 that a core computes from
TOKENS = 512  # at once: a step of a kernel costs a third of a microsecond, whatever is in it


class Drop(NamedTuple):
    """Which probabilities are dropped: as `layers.dropout` drops of [B, H, L, M], of which this is a part."""

    keys: jax.Array  # uint32[B]
    head: jax.Array  # int32[1], the first head here among all


@partial(jax.custom_vjp, nondiff_argnums=(5, 6, 7))
def attend(q_BLD, k_BMD, v_BMD, sequence_ids, drop: Drop, size: int, rate: float, interpret: bool):
    """Vectors [B, L, D]: values weighted by softmax and dropout of scores, head by head of this size.

    sequence_ids int32[B, L]: a token sees those of its own id. interpret: by plain operations, on any devices.
    """
    vectors = q_BLD, k_BMD, v_BMD
    return call(_forward_kernel, 1, vectors, sequence_ids, drop, size, rate, interpret)[0]


def _forward(q, k, v, *others):
    return attend(q, k, v, *others), (q, k, v, *others[:2])


def _backward(size, rate, interpret, saved, gradient):
    *vectors, sequence_ids, drop = saved
    vectors = *vectors, gradient
    found = call(_backward_kernel, 3, vectors, sequence_ids, drop, size, rate, interpret)
    return *found, None, None


attend.defvjp(_forward, _backward)


def call(kernel, results: int, arrays, sequence_ids, drop: Drop, size: int, rate: float, interpret):
    """Runs a kernel over all rows and all groups of heads that share lanes."""
    batch, length, width = arrays[0].shape
    rows = rows_at_once(batch, length)
    vectors = pl.BlockSpec((rows, length, LANES), lambda i, j: (i, 0, j))
    along = pl.BlockSpec((rows, length, 1), lambda i, j: (i, 0, 0))
    across = pl.BlockSpec((rows, 1, length), lambda i, j: (i, 0, 0))
    scalars = pl.BlockSpec(memory_space=pltpu.SMEM)
    like = jax.ShapeDtypeStruct(arrays[0].shape, arrays[0].dtype)
    function = partial(kernel, rows=rows, size=size, rate=rate)
    # Of each head 2 products forward and 5 backward, over all lanes; of float32 each is six of bfloat16.
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
        in_specs=[scalars, scalars, along, across, *[vectors] * len(arrays)],
        out_specs=[vectors] * results,
        out_shape=[like] * results,
        interpret=interpret,
        cost_estimate=cost,
        name=f"rows{kernel.__name__}",
    )(*drop, sequence_ids[:, :, None], sequence_ids[:, None, :], *arrays)


def rows_at_once(batch: int, length: int) -> int:
    """Rows of a step of a kernel."""
    return next(rows for rows in range(max(1, TOKENS // length), 0, -1) if batch % rows == 0)


def _forward_kernel(keys, first, along, across, q, k, v, out, *, rows: int, size: int, rate: float):
    for row in range(rows):
        total = jnp.zeros(q.shape[1:], jnp.float32)
        for head, own in heads_of(size, first[0]):
            probabilities, kept = weights(
                keys, along, across, q[row] * own, k[row], row, head, rate
            )
            total += product(dropped(probabilities, kept, rate), v[row] * own)
        out[row] = total.astype(out.dtype)


def _backward_kernel(
    keys,
    first,
    along,
    across,
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
):
    for row in range(rows):
        totals = [jnp.zeros(q.shape[1:], jnp.float32) for _ in range(3)]
        for head, own in heads_of(size, first[0]):
            query, along_head = q[row] * own, gradient[row] * own
            probabilities, kept = weights(keys, along, across, query, k[row], row, head, rate)
            d_probabilities = product(along_head, v[row], transposed=True).astype(q.dtype)
            d_probabilities = dropped(d_probabilities, kept, rate).astype(jnp.float32)
            weighted = probabilities.astype(jnp.float32) * d_probabilities
            d_scores = weighted - probabilities * weighted.sum(-1, keepdims=True)
            d_scores = d_scores.astype(q.dtype)
            totals[0] += product(d_scores, k[row] * own)
            totals[1] += product(d_scores.T, query)
            totals[2] += product(dropped(probabilities, kept, rate).T, along_head)
        for place, total in zip((d_q, d_k, d_v), totals, strict=True):
            place[row] = total.astype(place.dtype)


def heads_of(size: int, first):
    """(number of a head among all, 1 in its lanes and 0 in those of the others) of the heads of a group."""
    first += pl.program_id(1) * (LANES // size)
    lanes = jax.lax.broadcasted_iota(jnp.int32, (1, LANES), 1)
    for head in range(LANES // size):
        own = (lanes >= head * size) & (lanes < (head + 1) * size)
        own = 1 if size == LANES else own.astype(jnp.bfloat16)
        yield first + head, own


def product(a, b, transposed: bool = False):
    """float32 a @ b, or a @ b.T."""
    # Said for bfloat16, too: a TPU's kernels refuse six passes of it, which a default for float32 would ask for.
    precision = jax.lax.Precision.HIGHEST if a.dtype == jnp.float32 else jax.lax.Precision.DEFAULT
    contracted = ((1,), (1,)) if transposed else ((1,), (0,))
    return jax.lax.dot_general(
        a, b, (contracted, ((), ())), precision=precision, preferred_element_type=jnp.float32
    )


def weights(keys, along, across, query, key, row: int, head, rate: float):
    """Probabilities [L, M] in the dtype of the queries, and which of them dropout keeps, or None."""
    scores = product(query, key, transposed=True)
    scores = jnp.where(along[row] == across[row], scores, layers.MASKED)
    scores = jnp.exp(scores - scores.max(-1, keepdims=True))
    probabilities = (scores / scores.sum(-1, keepdims=True)).astype(query.dtype)
    if not rate:
        return probabilities, None
    length = scores.shape[0]
    places = (jax.lax.broadcasted_iota(jnp.int32, scores.shape, axis) for axis in (0, 1))
    counter = head * length * length + next(places) * length + next(places)
    bits = prng.fold(keys[pl.program_id(0) * along.shape[0] + row], counter.astype(jnp.uint32))
    return probabilities, bits >= jnp.uint32(round(rate * 2**32))


def dropped(x, kept, rate: float):
    """As `layers.dropout`."""
    return x if kept is None else jnp.where(kept, x * jnp.asarray(1 / (1 - rate), x.dtype), 0)
