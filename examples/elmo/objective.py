"""ELMo's objective: each word from those on its left, and from those on its right, by one softmax.

In training, the softmax is over the target and a sample, which is one for both directions and all rows of a step, so
its losses are less than those of an evaluation, which are over all words. It reads, besides the arrays of the network,

    next_weights        float32[B, L]    whether the word after this one counts
    previous_weights    float32[B, L]    whether the word before this one counts

B batch, L length.
"""

import jax.numpy as jnp
from elmo import softmax
from flax import linen as nn

from bert_jax.checks import check_keys, require
from bert_jax.layers.dropout import maybe_dropout
from bert_jax.models import base as models
from bert_jax.objectives import base

DEFAULTS = {
    # words of the sample of a training step; 0, or not less than the vocabulary: the softmax is over all words
    "samples": 8192,
}
DIRECTIONS = {"forward": "next_weights", "backward": "previous_weights"}


def check(config):
    check_keys(config, not_negative=["objective.samples"])
    hint = "expected a network with a state from each side, such as elmo.model"
    require("unroll" in config.model, "model.name", config, hint)


class Elmo(nn.Module):
    """A bidirectional language model, and the softmax of both directions."""

    network: nn.Module
    vocabulary_size: int
    samples: int

    def setup(self):
        network = self.network
        sizes = self.vocabulary_size, network.width
        self.lm = softmax.Softmax(*sizes, network.dtype, network.gradient_dtype)

    def __call__(self, batch, keys):
        """Returns {direction}_nats float32[B, L], of the next word at each place and of the one before."""
        states = self.network(batch, keys)
        sample = None
        if keys is not None and 0 < self.samples < self.vocabulary_size:
            sample = softmax.draw(batch["step_key"], self.vocabulary_size, self.samples)
        number = 2 * self.network.layers  # the first ones are those of the network
        states = maybe_dropout(states, keys, number, self.network.dropout)
        outputs = {}
        halves = jnp.split(states, 2, axis=-1)
        for direction, x, shift in zip(DIRECTIONS, halves, (-1, 1), strict=True):
            targets = jnp.roll(batch["tokens"], shift, axis=1)
            outputs[f"{direction}_nats"] = self.lm(x, targets, sample)
        return outputs


def make(config, vocabulary, **fields):
    """Returns the objective: the terms `forward` and `backward`, with their losses in nats a word."""

    def weights(batch):
        pairs = DIRECTIONS.items()
        return {direction: jnp.maximum(batch[name].sum(), 1.0) for direction, name in pairs}

    def terms(outputs, batch):
        return {
            f"{direction}_loss": base.weighted_mean(outputs[f"{direction}_nats"], batch[name])
            for direction, name in DIRECTIONS.items()
        }

    network = models.make(config, vocabulary.size, **fields)
    return base.from_module(
        Elmo(network, vocabulary.size, config.objective.samples),
        weights,
        terms,
        reads=("characters", *DIRECTIONS.values()),
        headline="forward_loss",
    )
