"""RoBERTa (arXiv:1907.11692): BERT without segments and pair loss, with two separators between texts.

In fine-tuning, its vector of a text is that of BERT, whose pooler is initialized at random.
"""

from bert_jax.layers import network
from bert_jax.models.bert import Bert

FRAME = "cls | sep sep | sep"
DEFAULTS = {
    "layers": 12,  # Transformer blocks
    "width": 768,  # size of the hidden states; a multiple of `heads`
    "heads": 12,  # attention heads
    "feed_forward": 0,  # size of the feed-forward layers; 0: four times the width
    "max_length": 512,  # number of position embeddings; no row may be longer
    "dropout": 0.1,  # dropout rate on embeddings, attention output and feed-forward output
    "attention": "auto",  # implementation of attention, as for model.name=bert
    "attention_dropout": 0.1,  # dropout rate on attention probabilities
    "activation": "gelu",  # gelu (exact), gelu_tanh or relu
    "positions": "learned",  # learned (an embedding of each position) or rotary (arXiv:2104.09864, base 10,000)
    "epsilon": 1e-5,  # epsilon of layer norms
    "initializer": 0.02,  # standard deviation of the truncated normal initializer
}


def make(config, vocabulary_size: int, **fields) -> Bert:
    """Returns the network of a config; see `network.make`."""
    return network.make(Bert, config, vocabulary_size, **fields)


def check(config) -> None:
    """Raises BadInput for the first of the model's keys that has an invalid value."""
    network.check(config)
    network.check_no_pairs(config)
