"""BERT (arXiv:1810.04805): a post-norm Transformer encoder with learned position embeddings and a pooler.

B batch, L length, S packed sequences per row, D width, V padded vocabulary.
"""

import jax.numpy as jnp

from bert_jax.checks import check_keys
from bert_jax.layers import network, pooling
from bert_jax.layers.dense import Dense

DEFAULTS = {
    "layers": 12,  # Transformer blocks
    "width": 768,  # size of the hidden states; a multiple of `heads`
    "heads": 12,  # attention heads
    "feed_forward": 0,  # size of the feed-forward layers; 0: four times the width
    "max_length": 512,  # number of position embeddings; no row may be longer
    "type_vocabulary": 2,  # number of segment embeddings
    "dropout": 0.1,  # dropout rate on embeddings, attention output and feed-forward output
    # implementation of attention; the results are equal but for rounding.
    # xla: any device and config.
    # fused: TPUs from v5 on, lengths that are multiples of 128 up to 1,024, some head sizes.
    # splash: TPUs from v4 on, lengths that are multiples of 128, attention_dropout 0.
    # cudnn: NVIDIA GPUs from Ampere on, bfloat16, attention_dropout 0.
    # auto: on TPUs the fastest that supports the config, by the compiler's estimate; on GPUs cudnn if it supports the
    # config; otherwise xla
    "attention": "auto",
    "attention_dropout": 0.1,  # dropout rate on attention probabilities
    "activation": "gelu_tanh",  # gelu_tanh (as in the original code), gelu or relu
    # parts that later encoders changed, for comparisons; the defaults are BERT's
    "norm": "post",  # what layer norms normalize: post (the sum of a layer and its input) or pre (the input)
    "gated": False,  # whether feed-forward layers have a gate, and so half as many parameters more
    "positions": "learned",  # learned (an embedding of each position) or rotary (arXiv:2104.09864, base 10,000)
    "epsilon": 1e-12,  # epsilon of layer norms
    "initializer": 0.02,  # standard deviation of the truncated normal initializer
}


class Bert(network.Network, kw_only=True):
    """The BERT encoder: rows of tokens to hidden states."""

    is_normal = True

    def setup(self):
        super().setup()
        self.pooler = Dense(self.width, self.initializer, self.gradient_dtype)

    def summary(self, x, batch):
        """Returns [B, S, D]: `pool` of the [CLS] vector of each sequence; with causal attention the vector of its last
        token."""
        if self.causal:
            return pooling.reduce(x, batch, "last")
        return self.pool(jnp.take_along_axis(x, batch["cls_positions"][..., None], axis=1))

    def pool(self, x):
        """Returns vectors x[B, S, D] after a dense layer and tanh."""
        return jnp.tanh(self.pooler(x))


def make(config, vocabulary_size: int, **fields) -> Bert:
    """Returns the network of a config; see `network.make`."""
    return network.make(Bert, config, vocabulary_size, **fields)


def check(config) -> None:
    """Raises BadInput for the first of the model's keys that has an invalid value."""
    network.check(config)
    check_keys(config, at_least_one=["model.type_vocabulary"])
