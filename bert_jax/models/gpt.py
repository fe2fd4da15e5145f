"""GPT-2 (Radford et al. 2019): pre-norm blocks with causal attention, learned positions, and logits by the word
embeddings. With post-norm blocks it is GPT (Radford et al. 2018).

B batch, L length, S packed sequences per row, D width, V padded vocabulary.
"""

import math

from bert_jax.checks import require
from bert_jax.layers import network, pooling
from bert_jax.layers.heads import Head

DEFAULTS = {
    "layers": 12,  # Transformer blocks
    "width": 768,  # size of the hidden states; a multiple of `heads`
    "heads": 12,  # attention heads
    "feed_forward": 0,  # size of the feed-forward layers; 0: four times the width
    "max_length": 1024,  # number of position embeddings; no row may be longer
    "dropout": 0.1,  # dropout rate on embeddings, attention output and feed-forward output
    "attention": "auto",  # implementation of attention, as for model.name=bert
    "attention_dropout": 0.1,  # dropout rate on attention probabilities
    "activation": "gelu_tanh",  # gelu_tanh, gelu or relu
    # what layer norms normalize: pre (the input of a layer, and the last states; GPT-2) or post (the sum of a layer and
    # its input; GPT)
    "norm": "pre",
    "positions": "learned",  # learned (an embedding of each position) or rotary (arXiv:2104.09864, base 10,000)
    "epsilon": 1e-5,  # epsilon of layer norms
    # standard deviation of the weights. With pre-norm that of position embeddings is half of it, and that of weights
    # whose output is added to the stream is less by the root of twice the number of layers
    "initializer": 0.02,
}
CUT_DEVIATION = 0.8796  # standard deviation of a standard normal that is cut at two deviations


class Gpt(network.Network, kw_only=True):
    """The decoder-only Transformer: rows of tokens to hidden states, of which each depends on no later token."""

    @property
    def head(self) -> Head:
        return super().head._replace(has_dense=False, has_bias=False)

    @property
    def out_initializer(self) -> float:
        if self.norm == "post":
            return self.initializer
        return self.initializer / math.sqrt(2 * self.layers)

    @property
    def position_scale(self) -> float:
        return 0.5 if self.norm == "pre" else 1.0

    def summary(self, x, batch):
        """Returns [B, S, D]: the vector of the last token of each sequence."""
        return pooling.reduce(x, batch, "last")


def make(config, vocabulary_size: int, network_type=Gpt, **fields) -> Gpt:
    """Returns the network of a config; see `network.make`. network_type: Gpt or a subclass."""
    config = config.copy_and_resolve_references()
    config.model.initializer /= CUT_DEVIATION
    return network.make(network_type, config, vocabulary_size, **fields | {"causal": True})


def check(config) -> None:
    """Raises BadInput for the first of the model's keys that has an invalid value."""
    network.check(config)
    hint = "model.name='gpt' sees no later token; use causal_lm, or objective.causal=True"
    require(config.objective.name != "mlm", "objective.name", config, hint)
    require(config.objective.get("causal", True), "objective.causal", config, hint)
