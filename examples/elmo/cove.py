"""CoVe (arXiv:1708.00107): embeddings of words and the states of a translator's encoder as features of a classifier.

B batch, L length, D width, S packed sequences of a row.
"""

import jax.numpy as jnp
from flax import linen as nn

from bert_jax.layers import pooling
from bert_jax.layers.heads import Head
from bert_jax.models import transformer

DEFAULTS = transformer.DEFAULTS
BODY = ("encoder",)
TAKES = {"transformer": {"encoder": "encoder"}}
FRAME = transformer.FRAME
check = transformer.check


class Cove(nn.Module):
    """The encoder of a translator, without dropout."""

    encoder: transformer.Encoder
    causal = False

    @property
    def head(self) -> Head:
        return self.encoder.head._replace(width=2 * self.encoder.width)

    @property
    def specs(self) -> list:
        return self.encoder.specs

    def states(self, batch, keys=None) -> list:
        """Returns one array, [B, L, 2 D]: the inputs of the first layer, embeddings and positions, and the last
        states."""
        states = self.encoder.states(batch)
        return [jnp.concatenate([states[0], states[-1]], axis=-1)]

    def summary(self, x, batch):
        """Returns [B, S, 2 D]: the mean of the vectors of a text."""
        return pooling.reduce(x, batch, "mean")


def make(config, vocabulary_size, **fields):
    return Cove(transformer.make(config, vocabulary_size, **fields).encoder)
