"""LAMB (arXiv:1904.00962, algorithm 2): AdamW whose update of each array is scaled to the norm of the array, so that
large batches can have high rates.

The update is multiplied by the trust ratio, norm of the array / norm of its update with weight decay, or by 1 if one of
them is 0. Norms are Euclidean, and those of whole arrays, also of sharded ones. Each layer has its own arrays, and in
it query, key and value have a ratio each, as in the original code (google-research/albert, lamb_optimizer.py). As
there, arrays without weight decay (biases and layer norms) have no ratio, and the bias of Adam's moments is not
corrected by default.
"""

from functools import partial

import optax

from bert_jax.models import base as models
from bert_jax.optimizers import adam

DEFAULTS = {**adam.DEFAULTS}
check = adam.check


def make(config, peak) -> optax.GradientTransformationExtraArgs:
    scale = optax.masked(optax.scale_by_trust_ratio(), partial(models.decayed, config))
    return optax.chain(adam.make(config, peak), scale)
