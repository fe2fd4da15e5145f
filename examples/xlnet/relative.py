"""Attention with relative positions (Transformer-XL, arXiv:1901.02860, section 3.3), and networks that have it.

The score of a query q and a key k, which is d tokens in front of it, is the sum of four terms:

    q k + u k + (q + v) r_d        r_d = W waves(d)

W and the biases u and v, of contents and of distances, are of each layer.

B batch, L queries, M keys, R distances, D width, H heads, K head size.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P

from bert_jax.checks import require
from bert_jax.layers import blocks, network
from bert_jax.layers.dense import Dense, truncated_normal
from bert_jax.layers.dropout import maybe_dropout
from bert_jax.layers.heads import Head
from bert_jax.layers.positions import sinusoids

RULES = (
    (r"distance/kernel$", P("fsdp", "tensor")),
    (r"(content|distance|segment)_bias$", P("tensor", None)),
)
DECAY = ((r"(content|distance|segment)_bias$", False),)
WAVES = 1 << 14  # number of the dropout on the waves; those of the layers are smaller
OUTPUT = 1 << 15  # that on the last states


def check(config) -> None:
    """Raises BadInput for the first invalid value among the keys of all networks, and for an odd width."""
    network.check(config)
    require(config.model.width % 2 == 0, "model.width", config, "expected an even number")


class Distances(NamedTuple):
    """What the attention reads as `extra`."""

    waves: jax.Array  # [1, R, D] of distances in descending order, the first is M - 1
    # int32[B, L] of queries and int32[B, M] of keys; (): both are consecutive, and the last ones are the same
    positions: tuple = ()
    segments: tuple = ()  # int32[B, L] of queries and int32[B, M] of keys; (): there is no term of segments


def wave_table(keys: int, width: int, is_causal: bool, clamp: int = 0):
    """Returns float32[1, R, D]: sines and then cosines of the distances from M - 1 to 1 - M, or to 0 if no key is
    behind its query.

    keys: M.
    clamp: larger distances count as this one; 0: none.
    """
    last = 0 if is_causal else 1 - keys
    distances = jnp.arange(keys - 1, last - 1, -1)
    if clamp:
        distances = jnp.clip(distances, -clamp, clamp)
    table = sinusoids(distances[None], width)
    return jnp.concatenate([table[..., ::2], table[..., 1::2]], axis=-1)


def shift(products, keys: int):
    """Returns [..., L, M] of products [..., L, R] with all distances: those with the distance to each key, if the last
    query and the last key have the same position. What has no distance, behind a causal query, is arbitrary.

    Each row is needed from one place further left than the row above. So with one more column, the rows of an array
    without it, which begins L - 1 places later, begin where they are needed (appendix B).
    """
    *batch, length, size = products.shape
    padded = jnp.pad(products, [(0, 0)] * (len(batch) + 1) + [(0, 1)])
    flat = padded.reshape(*batch, -1)[..., length - 1 : length - 1 + length * size]
    return flat.reshape(*batch, length, size)[..., :keys]


def gather(products, query_positions, key_positions):
    """Returns [B, H, L, M] of products [B, H, L, R] with all distances: those with the distance to each key.

    query_positions: int32[B, L]. key_positions: int32[B, M]. Pairs without a distance have an arbitrary value.
    """
    distances = query_positions[:, :, None] - key_positions[:, None]
    places = jnp.clip(key_positions.shape[1] - 1 - distances, 0, products.shape[-1] - 1)
    return jnp.take_along_axis(products, places[:, None], axis=-1)


class Attention(blocks.Attention):
    """Attention whose `extra` is a Distances."""

    def setup(self):
        super().setup()
        options = self.options
        width = self.heads * self.spec.head_size
        self.distance = Dense(width, options.initializer, options.gradient_dtype, bias=False)
        self.content_bias = self.make_bias("content_bias")
        self.distance_bias = self.make_bias("distance_bias")

    def make_bias(self, name: str):
        shape = self.heads, self.spec.head_size
        return self.param(name, truncated_normal(self.options.initializer), shape)

    def scaled(self, bias):
        """Returns a bias with the scale that queries have."""
        return (self.scale or self.spec.head_size**-0.5) * bias

    def bias(self, q_BLHK, k_BMHK, inputs):
        """The biases are no part of the queries, which may have 16 bits; these products are float32, as scores are."""
        distances = inputs.extra
        contents = jnp.einsum("hk,bmhk->bhm", self.scaled(self.content_bias), k_BMHK)
        r_RHK = self.split_heads(self.distance(distances.waves.astype(q_BLHK.dtype)))[0]
        products = jnp.einsum("blhk,rhk->bhlr", q_BLHK, r_RHK, preferred_element_type=jnp.float32)
        products += jnp.einsum("hk,rhk->hr", self.scaled(self.distance_bias), r_RHK)[:, None]
        if distances.positions:
            selected = gather(products, *distances.positions)
        else:
            selected = shift(products, k_BMHK.shape[1])
        return contents[:, :, None] + selected


class Network(network.Network, kw_only=True):
    """A network whose layers have relative positions, and logits by the word embeddings."""

    clamp: int = 0
    positions: str = "relative"
    attention_type = Attention

    @property
    def head(self) -> Head:
        return super().head._replace(has_dense=False)

    @property
    def dropouts(self) -> blocks.Dropouts:
        return blocks.Dropouts(self.dropout, 0.0, self.dropout, self.dropout)

    def make_attention(self, spec, **fields):
        """Its layers have no biases but those of distances."""
        options = self.options._replace(bias=False)
        return self.attention_type(self.heads, spec, options, parent=None, **fields)

    def waves(self, keys: int, step_key=None):
        """Returns [1, R, D], the waves of M keys, with dropout that all rows share. step_key: uint32[], or None."""
        table = wave_table(keys, self.width, self.causal, self.clamp)
        if step_key is None:
            return table
        return maybe_dropout(table, step_key[None], WAVES, self.dropout)

    def __call__(self, batch, keys=None):
        """Returns the last states [B, L, D], with dropout."""
        return self.drop_output(self.states(batch, keys)[-1], keys)

    def drop_output(self, x, keys):
        return maybe_dropout(x, keys, OUTPUT, self.dropout)
