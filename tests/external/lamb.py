"""LAMB (arXiv:1904.00962), an optimizer from outside of the package."""

import optax

from bert_jax.optimizers import adam

DEFAULTS = adam.DEFAULTS
check = adam.check


def make(config, network, peak):
    return optax.chain(
        optax.scale_by_adam(config.beta1, config.beta2, config.epsilon),
        optax.add_decayed_weights(config.weight_decay, network.decayed),
        optax.scale_by_trust_ratio(),
    )
