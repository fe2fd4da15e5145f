"""The loss of the next token of the target, and for evaluation greedy decoding."""

import jax.numpy as jnp
from flax import linen as nn

from bert_jax.layers import decoding
from bert_jax.models import base as models
from bert_jax.objectives import base

DEFAULTS = {}


def check(config): ...


class Translator(nn.Module):
    encoder: nn.Module  # the whole network

    def __call__(self, batch, keys=None):
        return {"target_logits": self.encoder.logits(self.encoder(batch, keys))}

    def start(self, batch):
        return self.encoder.start(batch)

    def step(self, tokens, cache):
        return self.encoder.step(tokens, cache)


def make(config, vocabulary, **fields):
    def weigh(batch):
        """Returns float32[B, T]: 1 for a token of the target that another one follows."""
        ids = batch["target_sequence_ids"]
        following = jnp.roll(ids, -1, axis=1).at[:, -1].set(0)
        return (ids == following) * (ids > 0) * batch["row_weights"][:, None]

    def weights(batch):
        return {"target": jnp.maximum(weigh(batch).sum(), 1.0)}

    def terms(outputs, batch):
        logits = outputs["target_logits"]
        targets = jnp.roll(batch["target_tokens"], -1, axis=1)
        weight = weigh(batch)
        return {
            "target_loss": base.weighted_mean(base.cross_entropy(logits, targets), weight),
            "target_accuracy": base.weighted_mean(base.hits(logits, targets), weight),
        }

    def decode(call, batch):
        length = batch["target_tokens"].shape[1]
        stop = decoding.Stop(vocabulary.sep, length - 1)
        first = batch["target_tokens"][:, 0]
        decoded = decoding.greedy(call("step"), call("start")(batch), first, stop)
        return {"decoded": decoded.tokens[:, 0]}

    module = Translator(models.make(config, vocabulary.size, **fields))
    return base.from_module(module, weights, terms, decode, reads=("target_tokens",))
