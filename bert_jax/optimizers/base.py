"""The interface of optimizers, and which parameters they train.

registry.Part names what the file of an optimizer has: `DEFAULTS` are its keys beside those of all runs, and

    make(config, peak) -> optax.GradientTransformation

applies the weight decay (to what `models.decayed` names), but neither the clipping nor the learning rate: its
updates have the sign of the gradient, as those of `optax.scale_by_adam`, and the chain multiplies them by -rate.

config: all keys.
peak: step -> the highest rate of the schedule in force.
"""

import jax
import jax.numpy as jnp

from bert_jax.models import base as models


def select_trained(config, step, new, old):
    """Returns the parameters `new`, with those of `old` that are not trained at a step: not yet (`unfreeze_every`), or
    never (`frozen`)."""
    keys = config.optimizer

    def select(above: int, new, old):
        if above and keys.frozen:
            return old
        if first := above * keys.unfreeze_every:
            return jnp.where(step >= first, new, old)
        return new

    return jax.tree.map(select, models.layers_above(config, new), new, old)


def bytes_per_parameter(state) -> float:
    """Returns the bytes of the optimizer's state for each parameter.

    state: a step.State, or its shapes.
    """
    moments = jax.tree.leaves(state.opt_state.inner)
    size = sum(leaf.size * leaf.dtype.itemsize for leaf in moments)
    return size / sum(leaf.size for leaf in jax.tree.leaves(state.params))
