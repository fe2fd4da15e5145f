"""LAMB (arXiv:1904.00962), an optimizer from outside of the package."""

import optax


def make(config, network):
    return optax.chain(
        optax.scale_by_adam(config.beta1, config.beta2, config.epsilon),
        optax.add_decayed_weights(config.weight_decay, network.decayed),
        optax.scale_by_trust_ratio(),
    )
