"""ModernBERT (arXiv:2412.13663): pre-norm blocks without biases, gated feed-forward layers, rotary positions, and local
attention in all layers but every third.

B batch, L length, D width, V padded vocabulary. Sizes and details are those of `ModernBertModel` of transformers, where
they agree with https://github.com/AnswerDotAI/ModernBERT.
"""

import math

from bert_jax.checks import check_keys, require
from bert_jax.layers import network, pooling
from bert_jax.layers.attention_spec import Spec
from bert_jax.layers.blocks import Dropouts
from bert_jax.layers.heads import Head

DEFAULTS = {
    "layers": 22,  # Transformer blocks
    "width": 768,  # size of the hidden states; a multiple of `heads`
    "heads": 12,  # attention heads
    "feed_forward": 1152,  # size of the feed-forward layers, behind the gate; 0: four times the width
    "max_length": 8192,  # no row may be longer; there are no position embeddings
    "full_every": 3,  # layers 0, 3, 6, ... attend to the whole row, and the others to a window
    "window": 128,  # tokens to which a local layer attends besides each token itself, half of them on each side
    "rotary_base": 160_000.0,  # base of the rotary positions in full layers; a phase may have its own
    "local_rotary_base": 10_000.0,  # the same in local layers
    "dropout": 0.1,  # dropout rate on the output of attention
    # implementation of attention, as for model.name=bert: auto, xla, fused (lengths up to 1,024, as full layers need;
    # auto chooses it for local layers up to 8,192), splash, or cudnn (but xla in local layers of rows of more than
    # eight windows)
    "attention": "auto",
    "activation": "gelu",  # gelu (exact), gelu_tanh or relu
    "epsilon": 1e-5,  # epsilon of layer norms
    # standard deviation of the truncated normal initializer; that of weights whose output is added to the stream, and
    # of the masked-LM head, is less, by the root of twice the number of layers
    "initializer": 0.02,
    # the vector of a text for objective.pool=summary. first: that of [CLS], with causal attention of the last token.
    # mean: of the tokens' vectors
    "pooling": "first",
}
PHASE_DEFAULTS = {
    "rotary_base": 0.0,  # base of the rotary positions in full layers in this phase; 0: model.rotary_base
    "local_rotary_base": 0.0,  # the same in local layers; 0: model.local_rotary_base
}


class ModernBert(network.Network, kw_only=True):
    """The ModernBERT encoder: rows of tokens to hidden states."""

    full_every: int
    window: int
    rotary_base: float
    local_rotary_base: float
    pooling: str
    norm: str = "pre"
    positions: str = "rotary"
    gated: bool = True
    bias = False
    is_normal = True

    @property
    def out_initializer(self) -> float:
        """`initializer`, divided by the root of twice the number of layers (arXiv:1909.08053, section 3)."""
        return self.initializer / math.sqrt(2 * self.layers)

    @property
    def head(self) -> Head:
        return super().head._replace(is_shared=True)

    @property
    def rotary_bases(self) -> list[float]:
        return self.choose(self.rotary_base, self.local_rotary_base)

    @property
    def specs(self) -> list[Spec]:
        return self.choose(self.make_spec(), self.make_spec(window=self.window))

    @property
    def dropouts(self) -> Dropouts:
        return Dropouts(attention=self.dropout)

    def choose(self, full, local) -> list:
        """Returns what belongs to each layer, of what belongs to full and to local ones."""
        return [local if number % self.full_every else full for number in range(self.layers)]

    def embed(self, batch, keys=None):
        return super().embed(batch)

    def summary(self, x, batch):
        """Returns [B, S, D]: the vector of each sequence by `pooling`."""
        return pooling.reduce(x, batch, self.pooling, self.causal)


def make(config, vocabulary_size: int, **fields) -> ModernBert:
    """Returns the network of a config; see `network.make`."""
    return network.make(ModernBert, config, vocabulary_size, **fields)


def check(config) -> None:
    """Raises BadInput for the first of the model's keys that has an invalid value."""
    network.check(config)
    check_keys(
        config,
        choices={"model.pooling": ("first", "mean")},
        at_least_one=["model.full_every"],
    )
    model = config.model
    is_even = model.window > 0 and model.window % 2 == 0
    require(is_even, "model.window", config, "expected an even number of tokens")
    network.check_rotary(config)
    for key in ("rotary_base", "local_rotary_base"):
        require(model[key] > 1, f"model.{key}", config, "expected more than 1")
        for name, phase in config.phases.items():
            is_base = phase[key] == 0 or phase[key] > 1
            require(is_base, f"phases.{name}.{key}", config, "expected 0 or more than 1")
    network.check_no_pairs(config)
