"""A small causal decoder: pre-norm blocks, learned positions, and logits by the word embeddings."""

from external import decoder_names

from bert_jax.checks import check_keys
from bert_jax.layers import network, pooling

ARCHITECTURE = decoder_names.DECODER  # for export and import
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

    def summary(self, x, batch):
        return pooling.reduce(x, batch, "last")


def make(config, vocabulary_size, **fields):
    return network.make(Decoder, config, vocabulary_size, **fields | {"causal": True})
