"""Weighted cross-entropy and accuracy of a classification, over a vocabulary or a few classes."""

import jax.numpy as jnp
from flax import linen as nn


def cross_entropy(logits, targets, weights):
    """Returns (weighted sum of cross-entropies in nats, total weight) and (weighted sum of hits, total weight).

    logits float32[..., V], targets int32[...], weights float32[...]. A hit is a target whose logit is the maximum. The
    cross-entropy computes that maximum anyway, while an argmax would read the logits once more.
    """
    chosen = jnp.take_along_axis(logits, targets[..., None], axis=-1)[..., 0]
    nats = nn.logsumexp(logits, axis=-1) - chosen
    hits = chosen >= logits.max(axis=-1)
    total = weights.sum()
    return ((nats * weights).sum(), total), ((hits * weights).sum(), total)
