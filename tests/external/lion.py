"""Lion (arXiv:2302.06675), an optimizer from outside of the package."""

from functools import partial

import optax

from bert_jax.models import base as models
from bert_jax.optimizers import adam

DEFAULTS = {**adam.DEFAULTS, "beta2": 0.99}
check = adam.check


def make(config, peak):
    keys = config.optimizer
    return optax.chain(
        optax.scale_by_lion(keys.beta1, keys.beta2),
        optax.add_decayed_weights(keys.weight_decay, partial(models.decayed, config)),
    )
