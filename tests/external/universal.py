"""An encoder of one block, which is applied `layers` times (arXiv:1807.03819, arXiv:1909.11942). After each pass a
token halts with some probability, and its last state is the mean of all passes by these (arXiv:2107.05407).

N passes, B batch, L length.
"""

import jax.numpy as jnp
from external import decoder
from flax import linen as nn

from bert_jax.layers import encoder
from bert_jax.layers.blocks import Dropouts
from bert_jax.layers.norm import LayerNorm

DEFAULTS = decoder.DEFAULTS
check = decoder.check


class Encoder(encoder.Encoder, kw_only=True):
    def setup(self):
        self.embedder = self.make_embedder(self.max_length, type_vocabulary=0)
        self.embedder_norm = LayerNorm(self.epsilon, self.dtype)
        self.final_norm = None
        dropouts = Dropouts(attention=self.dropout, feed_forward=self.dropout)
        self.blocks = self.make_blocks(self.specs[:1], dropouts) * self.layers
        self.halting = nn.Dense(1)

    def embed(self, batch, keys=None):
        return self.embedder_norm(self.embedder(batch["tokens"], batch["positions"], None))

    def halt(self, x):
        """Returns float32[B, L]: the probability that a token halts after a pass, if it has not yet."""
        return nn.sigmoid(self.halting(x.astype(jnp.float32)))[..., 0]

    def states(self, batch, keys=None):
        embeddings, *passes = super().states(batch, keys)
        shares = distribution([self.halt(x) for x in passes])
        mean = jnp.einsum("nbl,nbld->bld", shares, jnp.stack(passes))
        return [embeddings, *passes[:-1], mean.astype(self.dtype)]


def distribution(halts: list):
    """Returns float32[N, ...]: the probabilities of the number of passes. halts: those of `halt` of each pass; all
    tokens halt after the last one."""
    remaining = jnp.ones_like(halts[-1])
    shares = []
    for halt in halts[:-1]:
        shares.append(remaining * halt)
        remaining *= 1 - halt
    return jnp.stack([*shares, remaining])


def make(config, vocabulary_size, **fields):
    return encoder.make(Encoder, config, vocabulary_size, **fields)
