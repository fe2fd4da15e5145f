"""The loss of the next token of a sequence, and prompts that are continued with the cache."""

import jax.numpy as jnp
from flax import linen as nn

from bert_jax.layers import decoding
from bert_jax.models import base as models
from bert_jax.objectives import base

DEFAULTS = {}
NEW = 12  # tokens of a continuation, at most


class Generator(nn.Module):
    network: nn.Module

    def __call__(self, batch, keys=None):
        return {"lm_logits": self.network.vocabulary_logits(self.network(batch, keys))}

    def start(self, batch, length):
        return self.network.start(batch, batch["tokens"].shape[1] + length)

    def step(self, tokens, cache):
        x, cache = self.network.read_next(tokens, cache)
        return self.network.vocabulary_logits(x), cache


def make(config, vocabulary, **fields):
    def weigh(batch):
        """Returns float32[B, L]: 1 for a token that another one of its sequence follows."""
        ids = batch["sequence_ids"]
        following = jnp.roll(ids, -1, axis=1).at[:, -1].set(0)
        return (ids == following) * (ids > 0) * batch["row_weights"][:, None]

    def weights(batch):
        return {"lm": jnp.maximum(weigh(batch).sum(), 1.0)}

    def terms(outputs, batch):
        targets = jnp.roll(batch["tokens"], -1, axis=1)
        nats = base.cross_entropy(outputs["lm_logits"], targets)
        return {"lm_loss": base.weighted_mean(nats, weigh(batch))}

    def decode(call, batch):
        """Continues the first tokens of each row, whose number is that of sequence_ids that are not 0."""
        last = (batch["sequence_ids"] > 0).sum(axis=1) - 1
        first = jnp.take_along_axis(batch["tokens"], last[:, None], axis=1)[:, 0]
        stop = decoding.Stop(vocabulary.sep, NEW)
        cache = call("start")(batch, decoding.rooms(NEW)[0])
        decoded = decoding.greedy(call("step"), cache, first, stop)
        return {"continuation": decoded.tokens[:, 0]}

    module = Generator(models.make(config, vocabulary.size, **fields))
    return base.from_module(module, weights, terms, decode)
