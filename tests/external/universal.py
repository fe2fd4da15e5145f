"""An encoder of one block, which is applied `layers` times (arXiv:1807.03819, arXiv:1909.11942). After each pass a
token halts with some probability, and its last state is the mean of all passes by these (arXiv:2107.05407).

N passes, B batch, L length.
"""

import jax.numpy as jnp
from external import decoder
from flax import linen as nn

from bert_jax.layers import network

DEFAULTS = decoder.DEFAULTS
check = decoder.check


class Encoder(network.Network, kw_only=True):
    is_normal = True

    def setup(self):
        super().setup()
        self.halting = nn.Dense(1)

    def make_blocks(self, specs, *options):
        return super().make_blocks(specs[:1], *options) * self.layers

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
    return network.make(Encoder, config, vocabulary_size, **fields)
