"""ALBERT (arXiv:1909.11942): a BERT whose layers are one block, and whose embeddings are narrower than its states.

Details are those of https://github.com/google-research/albert, modeling.py. The layers draw dropout by their numbers,
as separate blocks would, and the gradient of the block is the sum over its layers. Embeddings that are as wide as the
states are projected, too.
"""

from bert_jax.checks import check_keys
from bert_jax.layers import network
from bert_jax.layers.attention_spec import Spec
from bert_jax.layers.blocks import Block
from bert_jax.models import bert

DEFAULTS = {
    "layers": 12,  # passes through the block
    "width": 768,  # size of the hidden states; a multiple of `heads`
    "embedding_width": 128,  # size of the embeddings, which a dense layer projects to `width`
    "heads": 12,  # attention heads
    "feed_forward": 0,  # size of the feed-forward layer; 0: four times the width
    "max_length": 512,  # number of position embeddings; no row may be longer
    "type_vocabulary": 2,  # number of segment embeddings
    "dropout": 0.0,  # dropout rate on embeddings, attention output and feed-forward output; 0.1 in version 1
    "attention": "auto",  # implementation of attention, as for model.name=bert
    "attention_dropout": 0.0,  # dropout rate on attention probabilities; 0.1 in version 1
    "activation": "gelu_tanh",  # gelu_tanh (as in the original code), gelu or relu
    "positions": "learned",  # learned (an embedding of each position) or rotary (arXiv:2104.09864, base 10,000)
    "epsilon": 1e-12,  # epsilon of layer norms
    "initializer": 0.02,  # standard deviation of the truncated normal initializer
}


class Albert(bert.Bert, kw_only=True):
    """The ALBERT encoder: rows of tokens to hidden states."""

    def make_blocks(self, specs: list[Spec], *options) -> list[Block]:
        """Returns the one block as often as there are layers."""
        return super().make_blocks(specs[:1], *options) * self.layers


def make(config, vocabulary_size: int, **fields) -> Albert:
    """Returns the network of a config; see `network.make`."""
    return network.make(Albert, config, vocabulary_size, **fields)


def check(config) -> None:
    """Raises BadInput for the first of the model's keys that has an invalid value."""
    bert.check(config)
    check_keys(config, at_least_one=["model.embedding_width"])
