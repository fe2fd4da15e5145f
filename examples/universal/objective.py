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


def is_halt(module, name):
    return module.name == "halt" and name == "__call__"


def make(config, vocabulary, **fields):
    """Returns the objective: translation's, with the term `ponder`, the cost of the passes of each token of a source
    and of a target, and the metric `passes`, their number."""
    inner = translation.make(config, vocabulary, **fields)

    def is_real(batch, side: str):
        return (batch[SIDES[side]] > 0) * batch["row_weights"][:, None]

    def weights(batch):
        tokens = sum(is_real(batch, side).sum() for side in SIDES)
        return inner.weights(batch) | {"ponder": jnp.maximum(tokens, 1.0)}

    def terms(outputs, batch):
        captured = outputs["captured"]
        ponder = []
        passes = []
        for side in SIDES:
            halting = act.halting([captured[path] for path in captured if f"/{side}/" in path])
            ponder.append(base.weighted_mean(halting.ponder, is_real(batch, side)))
            passes.append(base.weighted_mean(halting.passes, is_real(batch, side)))
        (cost, weight), (number, _) = (
            map(sum, zip(*each, strict=True)) for each in (ponder, passes)
        )
        return inner.terms(outputs, batch) | {
            "ponder_loss": (config.objective.ponder * cost, weight),
            "passes": (number, weight),
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
