"""Attention that reads a part of a row: blocks of it, or keys and values that a convolution compresses
(arXiv:1801.10198).

B batch, L length, D width, H heads, K head size, N blocks, Q queries of a block, W tokens of a window, M keys: those
that a block reads, or the windows of a row.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from bert_jax.layers import blocks
from bert_jax.layers.attention_spec import Mask
from bert_jax.layers.dense import MASKED
from bert_jax.parallel import constraints

# --- Blocks ---------------------------------------------------------------------------------------


class Blocks(NamedTuple):
    """A row in blocks of Q queries, and the keys that each block reads, its memory."""

    memory: jax.Array  # int32[N, M], the places of these keys in the row
    is_seen: jax.Array  # bool[B, N, Q, M], whether a query attends to a key


def fold(x, count: int, size: int):
    """Returns x[B, L, ...] as blocks [B, N, Q, ...], with zeros behind its end; N Q is at least L."""
    missing = count * size - x.shape[1]
    x = jnp.pad(x, [(0, 0), (0, missing)] + [(0, 0)] * (x.ndim - 2))
    return x.reshape(len(x), count, size, *x.shape[2:])


def make_blocks(memory: np.ndarray, is_seen: np.ndarray, ids, parts=None) -> Blocks:
    """Returns the Blocks of rows in which a query attends to a key if it `is_seen` and both are of the same sequence
    and of the same part of it.

    memory: int[N, M], of which those that are outside of the row are not seen.
    is_seen: bool[N, Q, M].
    ids: int32[B, L], sequence_ids; what has the id 0 is not seen.
    parts: int32[B, L], numbers of the parts of sequences, or None.
    """
    length = ids.shape[1]
    is_inside = (memory >= 0) & (memory < length)
    memory = np.clip(memory, 0, length - 1)
    is_seen = (is_seen & is_inside[:, None])[None] & (ids[:, memory] > 0)[:, :, None]
    for numbers in (ids,) if parts is None else (ids, parts):
        of_queries = fold(numbers, *is_seen.shape[1:3])
        is_seen &= of_queries[..., None] == numbers[:, memory][:, :, None]
    return Blocks(jnp.asarray(memory, jnp.int32), is_seen)


def local_blocks(ids, positions, size: int, is_packed: bool) -> Blocks:
    """Returns the Blocks of local attention: each sequence is cut into blocks of `size` tokens, which see none of the
    others. A token attends to itself and to the tokens of its block before it.

    ids, positions: int32[B, L].
    is_packed: whether a row may have several sequences. Then a block of a sequence lies in two blocks of the row, and
        each of these reads the one before it, too.
    """
    count = -(-ids.shape[1] // size)
    first = size * np.arange(count)[:, None]
    places = first + np.arange(size)
    memory = first + np.arange(-size if is_packed else 0, size)
    is_before = memory[:, None] <= places[..., None]
    return make_blocks(memory, is_before, ids, positions // size)


class BlockAttention(blocks.Attention):
    """Attention in blocks: M scores for each query, instead of L. `extra` of its inputs is Blocks."""

    def probabilities(self, q_BLHK, k_BLHK, inputs):
        """Returns float32[B, H, L, M]: those of the memory of the block of each query."""
        memory, is_seen = inputs.extra
        q_BNQHK = fold(q_BLHK, *is_seen.shape[1:3])
        k_BNMHK = k_BLHK[:, memory]
        scores = jnp.einsum(
            "bnqhk,bnmhk->bhnqm", q_BNQHK, k_BNMHK, preferred_element_type=jnp.float32
        )
        p_BHNQM = nn.softmax(jnp.where(is_seen[:, None], scores, MASKED))
        p_BHLM = p_BHNQM.reshape(*p_BHNQM.shape[:2], -1, memory.shape[1])
        return p_BHLM[:, :, : q_BLHK.shape[1]]

    def mix(self, p_BHLM, v_BLHK, inputs):
        memory, is_seen = inputs.extra
        length = v_BLHK.shape[1]
        p_BNQHM = fold(p_BHLM.swapaxes(1, 2), *is_seen.shape[1:3])
        mixed_BNQHK = jnp.einsum("bnqhm,bnmhk->bnqhk", p_BNQHM, v_BLHK[:, memory])
        return mixed_BNQHK.reshape(len(v_BLHK), -1, *v_BLHK.shape[2:])[:, :length]


# --- Compression ----------------------------------------------------------------------------------


class Windows(NamedTuple):
    """The windows of rows: W consecutive tokens of a sequence each, without a token in two of them."""

    places: jax.Array  # int32[B, M, W], of the tokens of a window in the row
    ids: jax.Array  # int32[B, M], of its sequence; 0: there is no such window


def make_windows(ids, positions, size: int) -> Windows:
    """Returns the windows of `size` tokens of each sequence, the first one at its beginning. Tokens at its end that
    fill none are in none.

    ids, positions: int32[B, L].
    """
    length = ids.shape[1]
    is_last = (positions % size == size - 1) & (ids > 0)
    last = jnp.where(is_last, jnp.arange(length), length)
    last = jnp.sort(last, axis=1)[:, : length // size]
    is_window = last < length
    last = jnp.where(is_window, last, size - 1)
    places = last[..., None] + jnp.arange(1 - size, 1)
    window_ids = jnp.where(is_window, jnp.take_along_axis(ids, last, axis=1), 0)
    return Windows(places, window_ids)


def compressed_mask(mask: Mask, windows: Windows) -> Mask:
    """Returns the mask of windows, behind a key of zeros that all queries see.

    A query attends to the windows of its sequence all of whose tokens lie before it, so that the first W tokens of a
    sequence see zeros alone. With rotary angles, a window has those of its last token.

    mask: that of the tokens.
    """
    ids = mask.query_ids
    last = windows.places[:, :, -1]
    is_before = last[:, None] < jnp.arange(ids.shape[1])[:, None]
    pairs = is_before & (ids[..., None] == windows.ids[:, None])
    pairs = jnp.pad(pairs, ((0, 0), (0, 0), (1, 0)), constant_values=True)
    return Mask(
        (ids > 0).astype(jnp.int32),
        jnp.ones((len(ids), pairs.shape[2]), jnp.int32),
        mask.angles,
        tuple(add_first(look_up(angle, last)) for angle in mask.angles),
        pairs=pairs,
    )


def look_up(x, places):
    """Returns x[B, L, D] at places int32[B, M]."""
    return jnp.take_along_axis(x, places[..., None], axis=1)


def add_first(x):
    """Returns x[B, M, ...] behind zeros, [B, 1 + M, ...]."""
    return jnp.pad(x, [(0, 0), (1, 0)] + [(0, 0)] * (x.ndim - 2))


class CompressedAttention(blocks.Attention):
    """Memory-compressed attention: keys and values are a convolution of the states, one of each window.

    Its stride is its width, so it is a dense layer of the W D components of a window. `extra` of the inputs is the
    places of Windows, and their mask is a `compressed_mask`.
    """

    def __call__(self, x, inputs, keys):
        rows, count, size = inputs.extra.shape
        tokens = constraints.map_rows(look_up)(x, inputs.extra.reshape(rows, count * size))
        source = tokens.reshape(rows, count, size * x.shape[-1])
        return super().__call__(x, inputs._replace(source=source), keys)

    def keys_and_values(self, states):
        """Returns two arrays [B, 1 + M, H, K], of windows [B, M, W D]."""
        k, v = super().keys_and_values(states)
        return add_first(k), add_first(v)
