"""A small causal decoder: pre-norm blocks, learned positions, and logits by the word embeddings."""

import jax.numpy as jnp

from bert_jax.config_checks import check_keys
from bert_jax.layers import network

DEFAULTS = {
    "layers": 2,
    "width": 32,
    "heads": 4,
    "feed_forward": 64,
    "max_length": 32,
    "dropout": 0.1,
    "attention": "auto",
    "activation": "gelu",
    "epsilon": 1e-5,
    "initializer": 0.1,
}


def check(config):
    network.check(config)
    check_keys(config, at_least_one=["model.feed_forward"])


class Decoder(network.Network, kw_only=True):
    norm: str = "pre"

    @property
    def specs(self):
        return [self.make_spec()._replace(causal=True)] * self.layers

    def summary(self, x, batch):
        """Returns [B, 1, D]: the vector of the last token."""
        last = (batch["sequence_ids"] > 0).sum(axis=1) - 1
        return jnp.take_along_axis(x, last[:, None, None], axis=1)


def make(config, vocabulary_size, **fields):
    return network.make(Decoder, config, vocabulary_size, **fields)
