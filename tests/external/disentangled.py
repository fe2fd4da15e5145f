"""DeBERTa (arXiv:2006.03654): queries and keys of contents and of relative positions, by the same layers.

B batch, L length, D width, H heads, K head size, R relative positions.
"""

import jax.numpy as jnp
import numpy as np
from external import decoder
from jax.sharding import PartitionSpec as P

from bert_jax.layers import blocks, encoder
from bert_jax.layers.attention_spec import BIAS
from bert_jax.layers.blocks import Dropouts
from bert_jax.layers.dense import truncated_normal
from bert_jax.layers.dropout import maybe_dropout
from bert_jax.layers.norm import LayerNorm

DEFAULTS = (
    decoder.DEFAULTS
    | {
        "buckets": 0,  # number of distances in one direction; far ones share one, by the logarithm. 0: `max_length`
    }
)
RULES = ((r"relative$", P()),)
DECAY = ((r"relative$", True),)
check = decoder.check


class Attention(blocks.Attention):
    """`extra`: the number int32[L, L] of the relative position of each key, and the embeddings [R, D] of these."""

    needs = (BIAS,)

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


class Encoder(encoder.Encoder, kw_only=True):
    buckets: int

    @property
    def specs(self):
        return [spec._replace(needs=Attention.needs) for spec in super().specs]

    def make_attention(self, spec):
        """The scores are sums of three products."""
        scale = (3 * spec.head_size) ** -0.5
        return Attention(self.heads, spec, self.options, scale, parent=None)

    def setup(self):
        self.embedder = self.make_embedder(max_length=0, type_vocabulary=0)
        self.embedder_norm = LayerNorm(self.epsilon, self.dtype)
        self.final_norm = None
        dropouts = Dropouts(attention=self.dropout, feed_forward=self.dropout)
        self.blocks = self.make_blocks(self.specs, dropouts)
        shape = 2 * (self.buckets or self.max_length), self.width
        self.relative = self.param("relative", truncated_normal(self.initializer), shape)
        self.relative_norm = LayerNorm(self.epsilon, self.dtype)

    def embed(self, batch, keys=None):
        x = self.embedder(batch["tokens"], None, None)
        return maybe_dropout(self.embedder_norm(x), keys, 0, self.dropout)

    def make_inputs(self, mask, positions):
        buckets = self.buckets or self.max_length
        numbers = relative_positions(positions.shape[1], buckets, self.max_length)
        extra = jnp.asarray(numbers), self.relative_norm(self.relative)
        return [inputs._replace(extra=extra) for inputs in super().make_inputs(mask, positions)]


def make(config, vocabulary_size, **fields):
    return encoder.make(Encoder, config, vocabulary_size, **fields)
