"""DeBERTa (arXiv:2006.03654): queries and keys of contents and of relative positions, by the same layers.

B batch, L length, D width, H heads, K head size, R relative positions.
"""

import jax.numpy as jnp
import numpy as np
from external import decoder
from jax.sharding import PartitionSpec as P

from bert_jax.layers import blocks, network
from bert_jax.layers.dense import truncated_normal
from bert_jax.layers.norm import LayerNorm

DEFAULTS = decoder.DEFAULTS | {
    # number of distances in one direction; far ones share one, by the logarithm. 0: `max_length`
    "buckets": 0,
}
RULES = ((r"relative$", P()),)
DECAY = ((r"relative$", True),)
check = decoder.check


class Attention(blocks.Attention):
    """`extra`: the number int32[L, L] of the relative position of each key, and the embeddings [R, D] of these."""

    def bias(self, q, k, inputs):
        numbers, table = inputs.extra
        keys = self.split_heads(self.key(table))
        queries = self.split_heads(self.query(table))
        to_position = jnp.einsum("blhk,rhk->bhlr", q, keys, preferred_element_type=jnp.float32)
        to_content = jnp.einsum("bmhk,rhk->bhmr", k, queries, preferred_element_type=jnp.float32)
        to_position = jnp.take_along_axis(to_position, numbers[None, None], axis=-1)
        to_content = jnp.take_along_axis(to_content, numbers.T[None, None], axis=-1)
        return to_position + to_content.swapaxes(2, 3)


def relative_positions(length: int, buckets: int, longest: int):
    """Returns int32[L, L]: the number, from 0 on, of the relative position of each key."""
    distances = np.arange(length)[:, None] - np.arange(length)
    sizes = np.abs(distances)
    middle = buckets // 2
    share = np.log(np.maximum(sizes, 1) / middle) / np.log((longest - 1) / middle)
    far = middle + np.ceil(share * (middle - 1))
    is_near = (sizes <= middle) | (buckets == longest)
    numbers = np.where(is_near, distances, np.sign(distances) * far)
    return np.clip(numbers + buckets, 0, 2 * buckets - 1).astype(np.int32)


class Encoder(network.Network, kw_only=True):
    buckets: int
    positions: str = "relative"
    is_normal = True
    attention_type = Attention

    def make_attention(self, spec):
        """The scores are sums of three products."""
        return super().make_attention(spec, scale=(3 * spec.head_size) ** -0.5)

    def setup(self):
        super().setup()
        shape = 2 * (self.buckets or self.max_length), self.width
        self.relative = self.param("relative", truncated_normal(self.initializer), shape)
        self.relative_norm = LayerNorm(self.epsilon, self.dtype)

    def make_inputs(self, mask, positions):
        buckets = self.buckets or self.max_length
        numbers = relative_positions(positions.shape[1], buckets, self.max_length)
        extra = jnp.asarray(numbers), self.relative_norm(self.relative)
        return [inputs._replace(extra=extra) for inputs in super().make_inputs(mask, positions)]


def make(config, vocabulary_size, **fields):
    return network.make(Encoder, config, vocabulary_size, **fields)
