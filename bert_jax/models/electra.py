"""ELECTRA (arXiv:2003.10555): a BERT whose embeddings may be narrower than its states.

It is the discriminator of objectives/replaced_tokens.py, and as its generator a smaller one. Details are those of
https://github.com/google-research/electra. The vector of a text is that of transformers, as their code has none, and so
are the initial weights of the projection: `initializer`, where theirs are larger (Glorot's).
"""

from bert_jax.checks import check_keys, require
from bert_jax.layers import network
from bert_jax.layers.blocks import ACTIVATIONS
from bert_jax.models import bert

DEFAULTS = {
    "layers": 12,  # Transformer blocks
    "width": 768,  # size of the hidden states; a multiple of `heads`
    # size of the embeddings, which a dense layer projects to `width`; 0: `width`, without that layer
    "embedding_width": 0,
    "heads": 12,  # attention heads
    "feed_forward": 0,  # size of the feed-forward layers; 0: four times the width
    "max_length": 512,  # number of position embeddings; no row may be longer
    "type_vocabulary": 2,  # number of segment embeddings
    "dropout": 0.1,  # dropout rate on embeddings, attention output and feed-forward output
    "attention": "auto",  # implementation of attention, as for model.name=bert
    "attention_dropout": 0.1,  # dropout rate on attention probabilities
    "activation": "gelu",  # gelu (exact, as in the original code), gelu_tanh or relu
    "positions": "learned",  # learned (an embedding of each position) or rotary (arXiv:2104.09864, base 10,000)
    "epsilon": 1e-12,  # epsilon of layer norms
    "initializer": 0.02,  # standard deviation of the truncated normal initializer
}


class Electra(bert.Bert, kw_only=True):
    """The ELECTRA encoder: rows of tokens to hidden states."""

    def pool(self, x):
        """Returns the vectors of texts [B, S, D] of those of their [CLS] tokens, by a dense layer and GELU."""
        return ACTIVATIONS["gelu"](self.pooler(x))


def make(config, vocabulary_size: int, **fields) -> Electra:
    """Returns the network of a config; see `network.make`."""
    return network.make(Electra, config, vocabulary_size, **fields)


def check(config) -> None:
    """Raises BadInput for the first of the model's keys that has an invalid value."""
    bert.check(config)
    network.check_no_pairs(config)
    check_keys(config, not_negative=["model.embedding_width"])
    is_valid = config.model.embedding_width != config.model.width
    require(is_valid, "model.embedding_width", config, "expected 0, or another than model.width")
