"""Translation by a network that halts: the loss also charges for passes (arXiv:1807.03819)."""

from dataclasses import replace

import jax.numpy as jnp
from universal import act

from bert_jax.checks import check_keys, require
from bert_jax.objectives import base, translation

DEFAULTS = translation.DEFAULTS | {
    "ponder": 0.01,  # weight of the passes and the remainder of a token, see act.py
}
SIDES = {"encoder": "sequence_ids", "decoder": "target_sequence_ids"}


def check(config):
    translation.check(config)
    check_keys(config, not_negative=["objective.ponder"])
    hint = "expected a network that halts, such as universal.model with model.halting=True"
    require(config.model.get("halting", False), "model.name", config, hint)


def token_weights(batch, side: str):
    """Returns float32[B, L], 1 for the tokens of a side of rows that count."""
    return (batch[SIDES[side]] > 0) * batch["row_weights"][:, None]


def is_halt(module, name):
    return module.name == "halt" and name == "__call__"


def make(config, vocabulary, **fields):
    """Returns the objective: translation's, with the term `ponder`, the mean cost of the passes of a token of sources
    and targets, and the metric `passes`, their number. tensor2tensor adds the means of both sides instead."""
    inner = translation.make(config, vocabulary, **fields)

    def weights(batch):
        tokens = sum(token_weights(batch, side).sum() for side in SIDES)
        return inner.weights(batch) | {"ponder": jnp.maximum(tokens, 1.0)}

    def terms(outputs, batch):
        captured = outputs["captured"]
        cost = 0.0
        passes = 0.0
        weight = 0.0
        for side in SIDES:
            halting = act.halting([captured[path] for path in captured if f"/{side}/" in path])
            tokens = token_weights(batch, side)
            cost += (halting.ponder * tokens).sum()
            passes += (halting.passes * tokens).sum()
            weight += tokens.sum()
        return inner.terms(outputs, batch) | {
            "ponder_loss": (config.objective.ponder * cost, weight),
            "passes": (passes, weight),
        }

    made = base.from_module(
        inner.module,
        weights,
        terms,
        captured=is_halt,
        reads=inner.reads,
        headline=inner.headline,
        can=inner.can,
    )
    return replace(made, outputs=inner.outputs)  # it decodes
