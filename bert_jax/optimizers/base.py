"""The interface of optimizers, and the functions that several of them use.

The file of an optimizer has `DEFAULTS`, its keys beside those of all runs, `check(config)`, and

    make(config, network, peak) -> optax.GradientTransformation

which applies the weight decay, but neither the clipping nor the learning rate.

config: the group `optimizer`, with the peak of the run as its learning rate.
network: a Network.
peak: step -> the highest rate of the schedule in force.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from bert_jax.models import base as models


class Network(NamedTuple):
    """The functions by which the optimizer distinguishes the parameters of a network, see models/base.py."""

    # (params) -> a tree of ints, the number of layers above that of each parameter
    layers_above: Callable
    decayed: Callable  # (params) -> a tree of bools, whether weight decay applies


def first_steps(config, network: Network, params):
    """Returns a tree of ints: the step from which on each parameter is trained, see `unfreeze_every`."""
    above = network.layers_above(params)
    return jax.tree.map(lambda layers: layers * config.unfreeze_every, above)


def select_trained(config, step, new, old):
    """Returns the parameters `new`, with those of `old` that are not trained at a step: not yet (`unfreeze_every`), or
    never (`frozen`).

    config: all keys, not only the group `optimizer`.
    """
    keys = config.optimizer

    def select(above: int, new, old):
        if above and keys.frozen:
            return old
        if first := above * keys.unfreeze_every:
            return jnp.where(step >= first, new, old)
        return new

    above = models.layers_above(new, models.body(config))
    return jax.tree.map(select, above, new, old)
