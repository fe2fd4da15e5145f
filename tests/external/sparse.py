"""BERT whose tokens attend to an even distance alone, by a mask of pairs, which no kernel computes."""

import jax.numpy as jnp

from bert_jax.layers import network
from bert_jax.layers.attention_spec import PAIRS
from bert_jax.models import bert

DEFAULTS = bert.DEFAULTS
check = bert.check


class Sparse(bert.Bert):
    @property
    def specs(self):
        return [spec._replace(needs=(PAIRS,)) for spec in super().specs]

    def make_inputs(self, mask, positions):
        places = jnp.arange(positions.shape[1])
        is_even = (places[:, None] - places) % 2 == 0
        return super().make_inputs(mask._replace(pairs=is_even[None]), positions)


def make(config, vocabulary_size, **fields):
    return network.make(Sparse, config, vocabulary_size, **fields)
