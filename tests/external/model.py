"""The sum of the word embeddings of each sequence, and a dense layer: arrays [B, S, D]."""

import jax.numpy as jnp
from flax import linen as nn

from bert_jax.errors import BadInput

DEFAULTS = {"width": 16}


def check(config):
    if config.model.width < 1:
        raise BadInput(f"config.model.width={config.model.width}: expected at least 1")


class Embedder(nn.Module):
    pieces: int
    width: int

    @nn.compact
    def __call__(self, tokens):
        return self.param("words", nn.initializers.normal(0.1), (self.pieces, self.width))[tokens]


class Encoder(nn.Module):
    pieces: int
    width: int

    def setup(self):
        self.embedder = Embedder(self.pieces, self.width)
        self.dense = nn.Dense(self.width)

    def __call__(self, batch, keys=None):
        x_BLD = self.embedder(batch["tokens"]) * batch["token_weights"][..., None]
        numbers = 1 + jnp.arange(batch["cls_positions"].shape[1])
        member_BLS = (batch["sequence_ids"][..., None] == numbers).astype(jnp.float32)
        return nn.relu(self.dense(jnp.einsum("bld,bls->bsd", x_BLD, member_BLS)))


def make(config, vocabulary_size):
    return Encoder(-(-vocabulary_size // 128) * 128, config.model.width)
