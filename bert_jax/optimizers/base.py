"""The interface of optimizers, and which parameters they train.

The file of an optimizer has `DEFAULTS`, its keys beside those of all runs, `check(config)`, and

    make(config, peak) -> optax.GradientTransformation

which applies the weight decay (to what `models.decayed` names), but neither the clipping nor the learning rate.

config: all keys.
peak: step -> the highest rate of the schedule in force.
"""

import jax
import jax.numpy as jnp

from bert_jax.models import base as models


def first_steps(config, params):
    """Returns a tree of ints: the step from which on each parameter is trained, see `unfreeze_every`."""
    every = config.optimizer.unfreeze_every
    return jax.tree.map(lambda above: above * every, layers_above(config, params))


def layers_above(config, params):
    """Returns a tree of ints: the number of layers above that of each parameter; see models/base.py."""
    return models.layers_above(params, models.body(config))


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

    return jax.tree.map(select, layers_above(config, new), new, old)
