"""Adafactor (arXiv:1804.04235) without momentum: factored second moments, updates clipped and scaled by RMS."""

from functools import partial

import optax

from bert_jax.models import base as models

DEFAULTS = {}


def make(config, peak) -> optax.GradientTransformationExtraArgs:
    return optax.chain(
        optax.scale_by_factored_rms(),
        optax.clip_by_block_rms(1.0),
        optax.scale_by_param_block_rms(),
        optax.add_decayed_weights(config.optimizer.weight_decay, partial(models.decayed, config)),
    )
