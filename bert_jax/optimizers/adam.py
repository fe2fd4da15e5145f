"""Adam (arXiv:1412.6980) with decoupled weight decay: AdamW. Without bias correction, if so configured, as in the
original BERT."""

from functools import partial

import jax
import jax.numpy as jnp
import optax

from bert_jax.checks import check_keys, require
from bert_jax.models import base as models

DEFAULTS = {
    "beta1": 0.9,  # decay rate of Adam's first moment
    "beta2": 0.999,  # decay rate of Adam's second moment
    "epsilon": 1e-6,  # epsilon of Adam
    # whether to correct the bias of Adam's moments; the original code does not
    "bias_correction": False,
    # data type of Adam's first moment: float32, or bfloat16 for half of its memory
    "moment_dtype": "float32",
}


def check(config) -> None:
    dtypes = {"optimizer.moment_dtype": ("float32", "bfloat16")}
    check_keys(config, dtypes, shares=("optimizer.beta1",))
    keys = config.optimizer
    require(0 < keys.beta2 < 1, "optimizer.beta2", config, "expected in (0, 1)")
    require(keys.epsilon > 0, "optimizer.epsilon", config, "expected more than 0")


def make(config, peak) -> optax.GradientTransformationExtraArgs:
    """Returns AdamW; see base.py."""
    return adamw(config, lambda step: config.optimizer.weight_decay)


def adamw(config, decay) -> optax.GradientTransformationExtraArgs:
    """Returns Adam whose updates of decayed parameters p have decay(step) * p added. decay: step -> float.

    The first moment is stored in `moment_dtype` and updated in float32; optax's `mu_dtype` rounds it twice.
    """
    keys = config.optimizer
    dtype = keys.moment_dtype

    def update(gradients, state, params, *, step, **_):
        mu = optax.tree.cast(state.mu, jnp.float32)
        mu = optax.tree.update_moment(gradients, mu, keys.beta1, 1)
        nu = optax.tree.update_moment(gradients, state.nu, keys.beta2, 2)
        count = optax.safe_increment(state.count)
        correct = partial(correct_bias, config, count, step)

        def change(m, v, p, is_decayed: bool):
            u = m / (jnp.sqrt(v) + keys.epsilon)
            return u + decay(step) * p if is_decayed else u

        moments = correct(keys.beta1, mu), correct(keys.beta2, nu)
        updates = jax.tree.map(change, *moments, params, models.decayed(config, params))
        return updates, optax.ScaleByAdamState(count, optax.tree.cast(mu, dtype), nu)

    init = optax.scale_by_adam(mu_dtype=dtype).init
    return optax.GradientTransformationExtraArgs(init, update)


def correct_bias(config, count, step, beta: float, moments):
    """Returns Adam's moments after `count` updates, without the bias to 0 of their start.

    A layer that is trained from a later step on has its first moments there. These are always corrected: the warm-up is
    over by then, and the layer's first updates would be up to seven times too large. `step` counts skipped steps, too,
    which makes their updates smaller at most.
    """

    keys = config.optimizer

    def correct(moment, above: int):
        first = above * keys.unfreeze_every
        if not (keys.bias_correction or first):
            return moment
        updates = count
        if first:
            updates = jnp.maximum(step + 1 - first, 1)
        return moment / (1 - beta**updates)

    return jax.tree.map(correct, moments, models.layers_above(config, moments))
