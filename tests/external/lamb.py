"""LAMB (arXiv:1904.00962), an optimizer from outside of the package."""

from functools import partial

import optax

from bert_jax.models import base as models
from bert_jax.optimizers import adam

DEFAULTS = adam.DEFAULTS
check = adam.check


def make(config, peak):
    keys = config.optimizer
    return optax.chain(
        optax.scale_by_adam(keys.beta1, keys.beta2, keys.epsilon),
        optax.add_decayed_weights(keys.weight_decay, partial(models.decayed, config)),
        optax.scale_by_trust_ratio(),
    )
