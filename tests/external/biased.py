"""BERT with a bias of near tokens in the scores of its attention, which no kernel computes."""

import jax.numpy as jnp

from bert_jax.layers import network
from bert_jax.layers.attention_spec import BIAS
from bert_jax.models import bert

DEFAULTS = bert.DEFAULTS
check = bert.check


class Biased(bert.Bert):
    @property
    def specs(self):
        return [spec._replace(needs=(BIAS,)) for spec in super().specs]

    def make_inputs(self, mask, positions):
        places = jnp.arange(positions.shape[1])
        distance = jnp.abs(places[:, None] - places)
        mask = mask._replace(bias=-0.1 * distance[None, None])
        return super().make_inputs(mask, positions)


def make(config, vocabulary_size, **fields):
    return network.make(Biased, config, vocabulary_size, **fields)
