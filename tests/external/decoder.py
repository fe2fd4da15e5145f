"""A small causal decoder: pre-norm blocks, learned positions, and logits by the word embeddings."""

import jax.numpy as jnp

from bert_jax.config_checks import check_keys
from bert_jax.layers import encoder
from bert_jax.layers.attention_spec import empty_cache
from bert_jax.layers.blocks import Dropouts
from bert_jax.layers.norm import LayerNorm

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
    encoder.check(config)
    check_keys(config, at_least_one=["model.feed_forward"])


class Decoder(encoder.Encoder):
    def setup(self):
        self.embedder = self.make_embedder(self.max_length, type_vocabulary=0)
        self.final_norm = LayerNorm(self.epsilon)
        specs = [self.make_spec()._replace(causal=True)] * self.layers
        dropouts = Dropouts(attention=self.dropout, feed_forward=self.dropout)
        fields = dict(is_normal=False, norm="pre")
        self.blocks = self.make_blocks(specs, self.feed_forward, dropouts, **fields)

    def states(self, batch, keys=None) -> list:
        x = self.embedder(batch["tokens"], batch["positions"], None)
        return self.apply_blocks(x, [self.make_mask(batch)] * self.layers, keys)

    def summary(self, x, batch):
        """Returns [B, 1, D]: the vector of the last token."""
        last = (batch["sequence_ids"] > 0).sum(axis=1) - 1
        return jnp.take_along_axis(x, last[:, None, None], axis=1)

    def start(self, batch):
        """Returns the caches of all tokens of each row but the last; the row is a prompt with padding at its end."""
        rows = len(batch["tokens"])
        spec = self.make_spec()
        cache = empty_cache(rows, self.max_length, self.heads, spec, self.dtype)
        _, caches = self.read(batch["tokens"], [cache] * self.layers)
        lengths = (batch["sequence_ids"] > 0).sum(axis=1, dtype=jnp.int32)
        return [cache._replace(position=lengths - 1) for cache in caches]

    def step(self, tokens, caches):
        """Returns float32[B, V], the logits after one more token int32[B] of each row, and the caches with it."""
        x, caches = self.read(tokens[:, None], caches)
        return self.vocabulary_logits(x[:, 0]), caches

    def read(self, tokens, caches):
        mask = caches[0].mask(tokens.shape[1])
        x = self.embedder(tokens, mask.positions[0], None)
        longer = []
        for block, cache in zip(self.blocks, caches, strict=True):
            x, cache = block(x, mask, None, cache=cache)
            longer.append(cache)
        return self.final_norm(x), longer


def make(config, vocabulary_size, **fields):
    return encoder.make(Decoder, config, vocabulary_size, **fields)
