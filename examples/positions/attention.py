"""Causal attention whose keys, and values, depend on the distance to the query (arXiv:1803.02155):

    score_ij = q_i . (k_j + a_ij)        out_i = sum_j p_ij (v_j + b_ij)        a_ij = keys[min(i - j, distance)]

and b_ij likewise. Each head has vectors of its own, as in the Music Transformer; Shaw et al. share them. The relative
part of all scores, q_i . a_ij, is computed by one of

    gather    the vectors a_ij of all pairs, then their products with the queries
    skew      the products of the queries with one vector for each distance, which padding and reshaping moves to their
              keys (arXiv:1809.04281)

Values are always gathered. Packed rows need nothing of their own: within a text, positions differ as places do.

B batch, L length of the queries, M length of the keys, H heads, K head size, R distances.
"""

from functools import partial

import jax.numpy as jnp
from jax.sharding import PartitionSpec as P

from bert_jax.layers import blocks
from bert_jax.layers.dense import truncated_normal

RULES = ((r"relative_(keys|values)$", P("tensor")),)
DECAY = ((r"relative_(keys|values)$", True),)


# With factors in bfloat16, too, the sums are in float32.
product = partial(jnp.einsum, preferred_element_type=jnp.float32)


def distances_between(positions: tuple, length: int, size: int):
    """Returns how far each of `size` keys is behind each of `length` queries, int32[L, M].

    positions: those of a mask, if they are not 0, 1, 2, ...; then each row has its own distances, int32[B, L, M].
    """
    queries, keys = positions or (jnp.arange(length), jnp.arange(size))
    return queries[..., None] - keys[..., None, :]


def gather(vectors_HRK, distances):
    """Returns the vectors of distances, [H, ..., K].

    distances: int32[...]. Those above R - 1 have its vector; those below 0 do not matter, for attention is causal.
    """
    return vectors_HRK[:, jnp.clip(distances, 0, vectors_HRK.shape[1] - 1)]


def gathered_scores(q_BLHK, vectors_HRK, distances):
    """Returns float32[B, H, L, M]: the products of queries with the vectors of their pairs, [H, L, M, K] or, with
    distances of each row, [H, B, L, M, K] of them."""
    vectors = gather(vectors_HRK.astype(q_BLHK.dtype), distances)
    return product("...lhk,h...lmk->...hlm", q_BLHK, vectors)


def scores_by_position(q_BLHK, vectors_HRK, distances):
    """Returns what `gathered_scores` does, of distances int32[B, L, M]: the products with all vectors are gathered."""
    products_BHLR = product("blhk,hrk->bhlr", q_BLHK, vectors_HRK.astype(q_BLHK.dtype))
    clipped = jnp.clip(distances, 0, vectors_HRK.shape[1] - 1)
    return jnp.take_along_axis(products_BHLR, clipped[:, None], axis=-1)


def skewed_scores(q_BLHK, vectors_HRK):
    """Returns float32[B, H, L, L]: what `gathered_scores` does at j <= i, if M = L; other numbers at j > i."""
    length = q_BLHK.shape[1]
    farthest_first = gather(vectors_HRK.astype(q_BLHK.dtype), jnp.arange(length)[::-1])
    return skew(product("blhk,hrk->bhlr", q_BLHK, farthest_first))


def skew(products):
    """Moves row i of [..., L, L] to the left by L - 1 - i, so that column L - 1 - d becomes column i - d.

    With a column in front, the first product of row i is at i (L + 1) + 1 in memory; without the first L numbers, at
    i L - (L - 1 - i).
    """
    *batch, length, _ = products.shape
    padded = jnp.pad(products, [(0, 0)] * (len(batch) + 1) + [(1, 0)])
    return padded.reshape(*batch, length + 1, length)[..., 1:, :]


class Attention(blocks.Attention):
    """Attention to keys and values that depend on distances.

    distance: keys that are farther away have the vector of this distance.
    skewed: whether scores are skewed; with positions, as those of a cache, they are chosen.
    has_values: whether values have vectors, too.
    """

    distance: int = 1
    skewed: bool = False
    has_values: bool = False

    def setup(self):
        super().setup()
        shape = self.heads, self.distance + 1, self.spec.head_size
        init = truncated_normal(self.options.initializer)
        self.relative_keys = self.param("relative_keys", init, shape)
        if self.has_values:
            self.relative_values = self.param("relative_values", init, shape)

    def bias(self, q_BLHK, k_BMHK, inputs):
        positions = inputs.mask.positions
        if self.skewed and not positions:
            return skewed_scores(q_BLHK, self.relative_keys)
        distances = distances_between(positions, q_BLHK.shape[1], k_BMHK.shape[1])
        scores = scores_by_position if self.skewed else gathered_scores
        return scores(q_BLHK, self.relative_keys, distances)

    def mix(self, p_BHLM, v_BMHK, inputs):
        mixed_BLHK = super().mix(p_BHLM, v_BMHK, inputs)
        if not self.has_values:
            return mixed_BLHK
        distances = distances_between(inputs.mask.positions, *p_BHLM.shape[2:])
        vectors = gather(self.relative_values.astype(v_BMHK.dtype), distances)
        relative = product("...hlm,h...lmk->...lhk", p_BHLM.astype(v_BMHK.dtype), vectors)
        return mixed_BLHK + relative.astype(v_BMHK.dtype)
