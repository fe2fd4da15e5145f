"""Attention by plain operations: for CPUs, for cases that no kernel supports, and as the reference of the kernels.

B batch, L length, M memory length, H heads, K head size.
"""

from functools import partial

import jax
import jax.numpy as jnp
from flax import linen as nn

from bert_jax import prng
from bert_jax.layers.dense import MASKED
from bert_jax.layers.dropout import maybe_dropout
from bert_jax.parallel import constraints

PARTS = 4  # at most; a local layer is faster than with 2 or 8, on two cores


def attention_mask(query_ids, key_ids, causal: bool, window: int, before: int = 0):
    """Maps int32[B, L] and int32[B, M] to bool[B, 1, L, M]: True where M is a real token of the same packed sequence as
    L, not later than L if `causal`, and at most window / 2 tokens away if there is a window.

    before: the number of keys in front of the first query.
    """
    same = query_ids[:, None, :, None] == key_ids[:, None, None, :]
    same &= (key_ids > 0)[:, None, None, :]
    later = jnp.arange(key_ids.shape[1]) - before - jnp.arange(query_ids.shape[1])[:, None]
    if causal:
        same &= later <= 0
    return same & (jnp.abs(later) <= window // 2) if window else same


def masked_attention(q_BLHK, k_BMHK, v_BMHK, mask, keys, dropout: float):
    """Computes attention to the keys where mask[B, 1, L, M] is True: on CPUs by `attention_on_cpu`.

    keys: uint32[B], of dropout at this rate, or None.
    """
    cpu = partial(attention_on_cpu, dropout=dropout)
    default = partial(masked_softmax, dropout=dropout)
    return jax.lax.platform_dependent(q_BLHK, k_BMHK, v_BMHK, mask, keys, cpu=cpu, default=default)


# Both are traced on every device. Under `jax.jit`, that is once for all layers.
@partial(jax.jit, static_argnames=("dropout", "q_axes", "k_axes"))
def masked_softmax(q, k, v, mask, keys, dropout: float, q_axes="blhk", k_axes="bmhk"):
    """Computes `masked_attention`. q_axes: the order of the axes of q and of the result; k_axes: of k and v."""
    scores_BHLM = jnp.einsum(f"{q_axes},{k_axes}->bhlm", q, k, preferred_element_type=jnp.float32)
    scores_BHLM = jnp.where(mask, scores_BHLM, MASKED)
    probabilities_BHLM = maybe_dropout(nn.softmax(scores_BHLM), keys, 0, dropout)
    return jnp.einsum(f"bhlm,{k_axes}->{q_axes}", probabilities_BHLM.astype(q.dtype), v)


@partial(jax.jit, static_argnames="dropout")
def attention_on_cpu(q_BLHK, k_BMHK, v_BMHK, mask, keys, dropout: float):
    """Computes `masked_attention` in parts of the rows at the same time, in another order of axes.

    XLA's CPU backend computes the products of all rows and heads of one operation one after another, and small ones by
    one thread. Different operations run at the same time, so each part has its own; but not on a mesh of several
    devices, because parts would move between them. In the gradient of the keys, the order puts the narrower factor on
    the left, as in `dense.sum_over_rows`. Barriers keep it, except for a batch of one row.
    """
    is_split = constraints.is_split(jax.sharding.get_abstract_mesh())
    count = 1 if is_split else max(1, min(PARTS, len(q_BLHK) // 2))

    def part(q_BLHK, k_BMHK, v_BMHK, mask, keys):
        order = (0, 2, 1, 3), (0, 2, 3, 1), (0, 2, 3, 1)
        vectors = map(jnp.transpose, (q_BLHK, k_BMHK, v_BMHK), order)
        vectors = map(jax.lax.optimization_barrier, vectors)
        axes = dict(q_axes="bhlk", k_axes="bhkm")
        return masked_softmax(*vectors, mask, keys, dropout, **axes).swapaxes(1, 2)

    arrays = q_BLHK, k_BMHK, v_BMHK, mask, keys
    parts = ([None] * count if x is None else jnp.array_split(x, count) for x in arrays)
    return jnp.concatenate([part(*each) for each in zip(*parts, strict=True)])


def attend(
    q_BLHK,
    k_BMHK,
    v_BMHK,
    sequence_ids,
    keys,
    dropout: float,
    causal: bool = False,
    window: int = 0,
    block: int = 0,
):
    """Computes attention by plain operations; scores and softmax in float32.

    With a window, each block of queries is a row of its own, whose keys are the block and window / 2 tokens on each
    side; unless that is the whole row. block: its size, of which window must be a multiple; 0: window / 2.
    """
    batch, length = sequence_ids.shape
    block = block or window // 2
    if not window or length <= window + block:
        mask = attention_mask(sequence_ids, sequence_ids, causal, window)
        return masked_attention(q_BLHK, k_BMHK, v_BMHK, mask, keys, dropout)
    count, half = -(-length // block), window // 2
    missing = count * block - length

    def blocks(x, before: int, after: int):
        x = jnp.pad(x, [(0, 0), (before, after + missing)] + [(0, 0)] * (x.ndim - 2))
        x = x.reshape(batch, -1, block, *x.shape[2:])
        parts = [x[:, first : first + count] for first in range(x.shape[1] - count + 1)]
        return jnp.concatenate(parts, axis=2).reshape(batch * count, -1, *x.shape[3:])

    q, query_ids = blocks(q_BLHK, 0, 0), blocks(sequence_ids, 0, 0)
    k, v, key_ids = (blocks(x, half, half) for x in (k_BMHK, v_BMHK, sequence_ids))
    if keys is not None:
        keys = prng.fold(keys[:, None], jnp.arange(count, dtype=jnp.uint32)).reshape(-1)
    mask = attention_mask(query_ids, key_ids, causal, window, half)
    mixed = masked_attention(q, k, v, mask, keys, dropout)
    return mixed.reshape(batch, -1, *mixed.shape[2:])[:, :length]
