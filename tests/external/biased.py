"""BERT with a bias of near tokens in the scores of its attention, which no kernel computes."""

import jax.numpy as jnp

from bert_jax.layers import encoder
from bert_jax.layers.attention_spec import BIAS
from bert_jax.models import bert

DEFAULTS = bert.DEFAULTS
check = bert.check


class Encoder(bert.Encoder):
    def make_masks(self, mask, positions):
        places = jnp.arange(positions.shape[1])
        distance = jnp.abs(places[:, None] - places)
        mask = mask._replace(bias=-0.1 * distance[None, None])
        return super().make_masks(mask, positions)


def make(config, vocabulary_size, **fields):
    return encoder.make(Encoder, config, vocabulary_size, **fields)


def resolve(config, phase, mesh, **fields):
    network = make(config, 0, **fields)
    return encoder.resolve(network, config, phase, mesh, properties=(BIAS,))
