"""Causal LM that is also measured in bits, with auxiliary losses: all layers predict the next token
(arXiv:1808.04444).

Each layer but the last one has a norm and a classifier of its own, which use does not read. In the paper, layer l of N
loses its loss after l / (2 N) of the training; a loss does not know the step, so here their weight is constant.

B batch, L length, N layers, V padded vocabulary, C vocabulary.
"""

import math

import jax.numpy as jnp
from flax import linen as nn

from bert_jax.checks import check_keys, require
from bert_jax.layers.dense import Dense
from bert_jax.layers.norm import LayerNorm
from bert_jax.objectives import base, causal_lm

DEFAULTS = causal_lm.DEFAULTS | {
    "auxiliary": 0.0,  # weight of the mean loss of all layers but the last one; 0: these have none
}


def check(config):
    check_keys(config, not_negative=["objective.auxiliary"])
    has_others = not config.objective.auxiliary or config.model.layers > 1
    hint = "expected 0: model.layers=1 has no other layers"
    require(has_others, "objective.auxiliary", config, hint)


class AuxiliaryHead(nn.Module):
    """A norm and a classifier: states [B, L, D] to logits float32[B, L, C]."""

    classes: int
    options: tuple

    @nn.compact
    def __call__(self, x):
        options = self.options
        x = LayerNorm(options.epsilon, bias=options.bias, name="norm")(x)
        dense = Dense(self.classes, options.initializer, options.gradient_dtype, name="dense")
        return dense(x.astype(jnp.float32))


class LanguageModel(causal_lm.LanguageModel):
    """A network whose layers all predict the next token. has_auxiliary: whether those but the last one do."""

    has_auxiliary: bool

    def setup(self):
        super().setup()
        head = self.network.head
        count = self.network.layers - 1 if self.has_auxiliary else 0
        sizes = head.vocabulary_size, head.options
        self.auxiliary_heads = [AuxiliaryHead(*sizes) for _ in range(count)]

    def __call__(self, batch, keys):
        """Returns lm_logits float32[B, L, V], and auxiliary_logits float32[B, N - 1, L, C] of the other layers."""
        states = self.network.states(batch, keys)
        outputs = {"lm_logits": self.lm(states[-1], self.network.vocabulary_logits)}
        if self.auxiliary_heads:
            pairs = zip(self.auxiliary_heads, states[1:-1], strict=True)
            outputs["auxiliary_logits"] = jnp.stack([head(x) for head, x in pairs], axis=1)
        return outputs


def make(config, vocabulary, **fields):
    """Returns causal LM with the metric bits_per_token and, unless its weight is 0, the term `auxiliary`."""
    inner = causal_lm.make(config, vocabulary, **fields)
    auxiliary = config.objective.auxiliary

    def weights(batch):
        totals = inner.weights(batch)
        if auxiliary:
            totals["auxiliary"] = totals["lm"] / auxiliary
        return totals

    def terms(outputs, batch):
        metrics = inner.terms(outputs, batch)
        nats, weight = metrics["lm_loss"]
        metrics["bits_per_token"] = nats / math.log(2), weight
        if auxiliary:
            targets = jnp.roll(batch["tokens"], -1, axis=1)[:, None]
            logits = outputs["auxiliary_logits"]
            targets = jnp.broadcast_to(targets, logits.shape[:-1])
            mean = base.cross_entropy(logits, targets).mean(axis=1)
            metrics["auxiliary_loss"] = base.weighted_mean(mean, batch["next_weights"])
        return metrics

    network = inner.module.network
    return base.from_module(
        LanguageModel(network, has_auxiliary=auxiliary > 0),
        weights,
        terms,
        guesses=inner.guesses,
        reads=inner.reads,
        headline=inner.headline,
        can=inner.can,
    )
