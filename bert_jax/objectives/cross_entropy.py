"""Cross-entropy and accuracy of a choice among classes, pieces of a vocabulary among them."""

import jax.numpy as jnp
from flax import linen as nn


def cross_entropy(logits, targets, weights):
    """Summed cross-entropy in nats and summed hits, each with the weight it was summed over.

    logits float32[..., V], targets int32[...], weights float32[...]. A hit is a target that no other logit exceeds:
    the maximum is there already for the cross-entropy, an argmax would read the logits once more.
    """
    chosen = jnp.take_along_axis(logits, targets[..., None], axis=-1)[..., 0]
    nats = nn.logsumexp(logits, axis=-1) - chosen
    hits = chosen >= logits.max(axis=-1)
    total = weights.sum()
    return ((nats * weights).sum(), total), ((hits * weights).sum(), total)
