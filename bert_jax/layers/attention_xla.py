"""Attention by plain operations: for CPUs, for cases that no kernel supports, and as the reference of the kernels.

B batch, L length, M memory length, H heads, K head size.
"""

from functools import partial

import jax
import jax.numpy as jnp
from flax import linen as nn
from jax.sharding import get_abstract_mesh

from bert_jax import prng
from bert_jax.layers.attention_spec import Mask, Spec
from bert_jax.layers.dense import MASKED
from bert_jax.layers.dropout import maybe_dropout
from bert_jax.parallel import constraints

PARTS = 4  # at most; a local layer is faster than with 2 or 8, on two cores
FEW = 8  # queries of a row, as in decoding: the copies of keys and values would take longer than the products


def attention_mask(mask: Mask, spec: Spec, before: int = 0):
    """Returns bool[B, 1, L, M]: True where M is a real token of the same packed sequence as L to which L attends. Other
    keys do not exist.

    before: the number of keys in front of the first query.
    """
    query_ids = mask.query_ids
    key_ids = query_ids if mask.key_ids is None else mask.key_ids
    result = query_ids[:, None, :, None] == key_ids[:, None, None, :]
    result &= (key_ids > 0)[:, None, None, :]
    if mask.positions:
        queries, keys = mask.positions
        distance = keys[:, None, None, :] - queries[:, None, :, None]
    else:
        distance = jnp.arange(key_ids.shape[1]) - before - jnp.arange(query_ids.shape[1])[:, None]
    if spec.causal:
        result &= distance <= 0
    if spec.window:
        result &= jnp.abs(distance) <= spec.window // 2
    if mask.pairs is not None:
        result &= mask.pairs[:, None]
    return result


def masked_attention(q_BLHK, k_BMHK, v_BMHK, is_seen, keys, dropout: float):
    """Computes attention: on CPUs by `attention_on_cpu`, on NVIDIA GPUs by `attention_on_gpu`.

    is_seen: an `attention_mask`.
    keys: uint32[B], of dropout at this rate, or None.
    """
    default = partial(masked_softmax, dropout=dropout)
    cpu = partial(attention_on_cpu, dropout=dropout)
    cuda = partial(attention_on_gpu, dropout=dropout)
    if q_BLHK.shape[1] <= FEW:
        cpu = cuda = default
    return jax.lax.platform_dependent(
        q_BLHK,
        k_BMHK,
        v_BMHK,
        is_seen,
        keys,
        cpu=cpu,
        cuda=cuda,
        default=default,
    )


# All are traced on every device. Under `jax.jit`, that is once for all layers.
@partial(jax.jit, static_argnames=("dropout", "axes"))
def masked_softmax(q, k, v, is_seen, keys, dropout: float, axes=("blhk", "bmhk")):
    """Computes `masked_attention`. axes: their order in q and the result, and in k and v."""
    q_axes, k_axes = axes
    scores_BHLM = jnp.einsum(
        f"{q_axes},{k_axes}->bhlm",
        q,
        k,
        preferred_element_type=jnp.float32,
    )
    probabilities_BHLM = probabilities(scores_BHLM, is_seen, keys, dropout, q.dtype)
    return jnp.einsum(f"bhlm,{k_axes}->{q_axes}", probabilities_BHLM, v)


def probabilities(scores_BHLM, is_seen, keys, dropout: float, dtype):
    """Returns dtype[B, H, L, M]: the softmax of scores float32[B, H, L, M], with dropout."""
    scores_BHLM = jnp.where(is_seen, scores_BHLM, MASKED)
    return maybe_dropout(nn.softmax(scores_BHLM), keys, 0, dropout).astype(dtype)


def probabilities_of(spec: Spec, mask: Mask, q_BLHK, k_BMHK, bias):
    """Returns float32[B, H, L, M]: those of all pairs, without dropout. bias: float32[B, H, L, M], added to the scores,
    or None."""
    scores_BHLM = jnp.einsum("blhk,bmhk->bhlm", q_BLHK, k_BMHK, preferred_element_type=jnp.float32)
    if bias is not None:
        scores_BHLM += bias
    return probabilities(scores_BHLM, attention_mask(mask, spec), None, 0.0, jnp.float32)


@partial(jax.jit, static_argnames="dropout")
def attention_on_cpu(q_BLHK, k_BMHK, v_BMHK, is_seen, keys, dropout: float):
    """Computes `masked_attention` in parts of the rows at the same time, in another order of axes.

    XLA's CPU backend computes the products of all rows and heads of one operation one after another, and small ones by
    one thread. Different operations run at the same time, so each part has its own; but not on a mesh of several
    devices, because parts would move between them. In the gradient of the keys, the order puts the narrower factor on
    the left, as in `dense.sum_over_rows`. Barriers keep it, except for a batch of one row.
    """
    is_split = constraints.is_split(get_abstract_mesh())
    count = 1 if is_split else max(1, min(PARTS, len(q_BLHK) // 2))

    def attend_part(q_BLHK, k_BMHK, v_BMHK, is_seen, keys):
        q_BHLK = jax.lax.optimization_barrier(q_BLHK.transpose(0, 2, 1, 3))
        k_BHKM = jax.lax.optimization_barrier(k_BMHK.transpose(0, 2, 3, 1))
        v_BHKM = jax.lax.optimization_barrier(v_BMHK.transpose(0, 2, 3, 1))
        axes = "bhlk", "bhkm"
        mixed_BHLK = masked_softmax(q_BHLK, k_BHKM, v_BHKM, is_seen, keys, dropout, axes)
        return mixed_BHLK.swapaxes(1, 2)

    arrays, structure = jax.tree.flatten((q_BLHK, k_BMHK, v_BMHK, is_seen, keys))
    split = [jnp.array_split(x, count) for x in arrays]
    parts = [structure.unflatten(arrays) for arrays in zip(*split, strict=True)]
    return jnp.concatenate([attend_part(*part) for part in parts])


@jax.custom_vjp
def products_on_gpu(q_BHLK, k_BHMK):
    """Returns float32[B, H, L, M]: the products of queries and keys.

    The backward pass rounds the gradient to their dtype, as splash attention and cuDNN do. Otherwise XLA stores it in
    float32, and computes its two products with float32 factors.
    """
    return jnp.einsum("bhlk,bhmk->bhlm", q_BHLK, k_BHMK, preferred_element_type=jnp.float32)


def _products_forward(q_BHLK, k_BHMK):
    return products_on_gpu(q_BHLK, k_BHMK), (q_BHLK, k_BHMK)


def _products_backward(factors, gradient):
    q_BHLK, k_BHMK = factors
    gradient = gradient.astype(q_BHLK.dtype)
    d_q = jnp.einsum("bhlm,bhmk->bhlk", gradient, k_BHMK)
    d_k = jnp.einsum("bhlm,bhlk->bhmk", gradient, q_BHLK)
    return d_q, d_k


products_on_gpu.defvjp(_products_forward, _products_backward)


@partial(jax.jit, static_argnames="dropout")
def attention_on_gpu(q_BLHK, k_BMHK, v_BMHK, is_seen, keys, dropout: float):
    """Computes `masked_attention` with heads in front of tokens, as cuBLAS reads them.

    Without the barriers, XLA writes two transposed copies of keys and of gradients, one for each product. The backward
    pass computes the softmax again from the scores: if it read the maxima and sums of their rows, the forward pass
    would compute these in a pass of its own.
    """
    arrays = (x.swapaxes(1, 2) for x in (q_BLHK, k_BMHK, v_BMHK))
    q_BHLK, k_BHMK, v_BHMK = jax.lax.optimization_barrier(tuple(arrays))
    scores_BHLM = products_on_gpu(q_BHLK, k_BHMK)
    compute = jax.checkpoint(partial(probabilities, dropout=dropout, dtype=q_BLHK.dtype))
    probabilities_BHLM = compute(scores_BHLM, is_seen, keys)
    mixed_BHLK = jnp.einsum("bhlm,bhmk->bhlk", probabilities_BHLM, v_BHMK)
    return jax.lax.optimization_barrier(mixed_BHLK).swapaxes(1, 2)


def attend(spec: Spec, mask: Mask, q_BLHK, k_BMHK, v_BMHK, keys, block: int = 0):
    """Computes attention by plain operations; see `attention.attend`. Scores and softmax are in float32.

    With a window, each block of queries is a row of its own, whose keys are the block and half a window of tokens on
    each side; unless that is the whole row, or the mask has more than the ids of one sequence.

    keys: uint32[B], of dropout at the rate of `spec`, or None.
    block: queries that are computed together with a window, which is a multiple of it; 0: half a window.
    """
    batch, length = mask.query_ids.shape
    half = spec.window // 2
    if not block:
        block = 1 if spec.is_counted else half
    if not spec.window or length <= spec.window + block or mask.properties():
        is_seen = attention_mask(mask, spec)
        return masked_attention(q_BLHK, k_BMHK, v_BMHK, is_seen, keys, spec.dropout)
    count = -(-length // block)
    missing = count * block - length

    def make_rows(x, margin: int):
        x = jnp.pad(x, [(0, 0), (margin, margin + missing)] + [(0, 0)] * (x.ndim - 2))
        x = x.reshape(batch, -1, block, *x.shape[2:])
        neighbours = [x[:, first : first + count] for first in range(x.shape[1] - count + 1)]
        return jnp.concatenate(neighbours, axis=2).reshape(batch * count, -1, *x.shape[3:])

    q = make_rows(q_BLHK, 0)
    query_ids = make_rows(mask.query_ids, 0)
    k = make_rows(k_BMHK, half)
    v = make_rows(v_BMHK, half)
    key_ids = make_rows(mask.query_ids, half)
    if keys is not None:
        keys = prng.fold(keys[:, None], jnp.arange(count, dtype=jnp.uint32)).reshape(-1)
    is_seen = attention_mask(Mask(query_ids, key_ids), spec, half)
    mixed = masked_attention(q, k, v, is_seen, keys, spec.dropout)
    return mixed.reshape(batch, -1, *mixed.shape[2:])[:, :length]
