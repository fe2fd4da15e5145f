"""Attention with relative keys and values (arXiv:1803.02155): each distance from a query to a key has a vector that is
added to the keys, and another one that is added to the values.

B batch, L length of the queries, M length of the keys, H heads, K head size, R relative positions.
"""

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P

from bert_jax.layers import blocks
from bert_jax.layers.dense import truncated_normal

RULES = ((r"relative_(keys|values)$", P()),)
DECAY = ((r"relative_(keys|values)$", True),)


class Attention(blocks.Attention):
    reach: int = 1  # keys that are farther away have the relative position of this distance

    def setup(self):
        super().setup()
        shape = 2 * self.reach + 1, self.spec.head_size
        init = truncated_normal(self.options.initializer)
        self.relative_keys = self.param("relative_keys", init, shape)
        self.relative_values = self.param("relative_values", init, shape)

    def one_hot(self, inputs, length, size):
        """Returns float32[B, L, M, R], 1 at the relative position of each key, or [1, L, M, R] for all rows."""
        queries, keys = inputs.mask.positions or (jnp.arange(length)[None], jnp.arange(size)[None])
        distances = keys[:, None] - queries[..., None]
        places = jnp.clip(distances, -self.reach, self.reach) + self.reach
        return jax.nn.one_hot(places, 2 * self.reach + 1)

    def bias(self, q, k, inputs):
        places = self.one_hot(inputs, q.shape[1], k.shape[1])
        products = jnp.einsum("blhk,rk->blhr", q, self.relative_keys)
        return jnp.einsum("...lhr,...lmr->...hlm", products, places)

    def mix(self, p, v, inputs):
        places = self.one_hot(inputs, *p.shape[2:])
        totals = jnp.einsum("...hlm,...lmr->...lhr", p, places)
        relative = jnp.einsum("blhr,rk->blhk", totals, self.relative_values)
        return super().mix(p, v, inputs) + relative.astype(v.dtype)
