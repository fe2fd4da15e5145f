"""StableAdamW (arXiv:2304.13013): AdamW with bias correction, whose update of each array is divided by the RMS of
gradient / sqrt(second moment) where that is above 1. It replaces the clipping of gradients by their norm.

As in torch-optimi with decouple_lr=True, the weight decay is relative to the rate's share of its peak, and divided like
the update. torch-optimi debiases the betas instead of the moments, which has the same results.
"""

import jax
import jax.numpy as jnp
import optax

from bert_jax.checks import require
from bert_jax.optimizers import adam

DEFAULTS = {
    **adam.DEFAULTS,
    "bias_correction": True,  # whether to correct the bias of Adam's moments
}


def check(config) -> None:
    adam.check(config)
    keys = config.optimizer
    hint = "expected -1 or more than 0 with optimizer.name='stable_adamw'"
    require(keys.learning_rate != 0, "optimizer.learning_rate", config, hint)
    hint = "expected less than 0.01 with stable_adamw, whose decay is not multiplied by the rate"
    require(keys.weight_decay < 0.01, "optimizer.weight_decay", config, hint)


def make(config, peak) -> optax.GradientTransformationExtraArgs:
    keys = config.optimizer
    init, adamw = adam.adamw(config, lambda step: keys.weight_decay / peak(step))

    def update(gradients, state, params, *, step, **_):
        updates, state = adamw(gradients, state, params, step=step)
        nu = adam.correct_bias(config, state.count, step, keys.beta2, state.nu)

        def stabilize(u, g, v):
            rms = jnp.sqrt(jnp.mean(g**2 / jnp.maximum(v, keys.epsilon**2)))
            return u / jnp.maximum(rms, 1.0)

        return jax.tree.map(stabilize, updates, gradients, nu), state

    return optax.GradientTransformationExtraArgs(init, update)
