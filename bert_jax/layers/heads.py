"""Output heads on top of a network.

B batch, L length, S packed sequences per row, D width, V padded vocabulary, C outputs.
"""

from typing import NamedTuple

import jax.numpy as jnp
from flax import linen as nn

from bert_jax.checks import check_keys, require
from bert_jax.layers import pooling
from bert_jax.layers.blocks import ACTIVATIONS, LayerOptions
from bert_jax.layers.dense import Dense
from bert_jax.layers.dropout import maybe_dropout
from bert_jax.layers.embeddings import padded_size
from bert_jax.layers.norm import LayerNorm


class Head(NamedTuple):
    """What heads read of a network, its property `head`."""

    vocabulary_size: int
    width: int  # of the states
    options: LayerOptions
    embedding_width: int = 0  # of the word embeddings; 0: `width`
    has_dense: bool = True  # whether a dense layer and a norm are in front of the logits
    has_bias: bool = True  # whether the logits have one
    # Whether a classifier has the dense layer and the norm of the masked LM head, too (ModernBERT). These parameters
    # have the names that they have in the masked LM, from which a fine-tuned model takes them.
    is_shared: bool = False


class LMHead(nn.Module):
    """The head over the vocabulary: hidden states [..., D] -> logits float32[..., V]."""

    head: Head

    @nn.compact
    def __call__(self, x, vocabulary_logits=None):
        """Returns the logits; without `vocabulary_logits`, the network's method of that name, the vectors [..., D] that
        they are computed from."""
        head = self.head
        options = head.options
        if head.has_dense:
            dense = Dense(
                head.embedding_width or head.width,
                options.out_initializer,
                options.gradient_dtype,
                bias=options.bias,
                name="dense",
            )
            x = ACTIVATIONS[options.activation](dense(x))
            x = LayerNorm(options.epsilon, bias=options.bias, name="norm")(x)
        if vocabulary_logits is None:
            return x
        if not head.has_bias:
            return vocabulary_logits(x)
        size = padded_size(head.vocabulary_size)
        bias = self.param("bias", nn.initializers.zeros, (size,), jnp.float32)
        return vocabulary_logits(x, bias)


FEATURES = ("last", "mix", "last4")
DROPOUT = 1 << 16  # number of the dropout in front of the label; those of the layers are smaller
# Keys of an objective with a Classifier.
DEFAULTS = {
    # vectors of the tokens. last: the last states. mix: the mean of all layers with learned weights and scale (ELMo,
    # arXiv:1802.05365). last4: those of the last four layers, one after the other (arXiv:1810.04805, table 7)
    "features": "last",
    # whether a token sees those before it alone. Fine-tuning takes this from the model that it starts from
    "causal": False,
    "dropout": 0.1,  # dropout rate on the vectors in front of the last dense layer
}
# Keys of an objective whose Classifier has a vector for each text.
POOL_DEFAULTS = {
    # the vector of a text. summary: the model's own, of the last states: BERT's pooler on that of [CLS], or
    # model.pooling of ModernBERT; with causal attention last in place of first. first, last: the vector of [CLS], of
    # the last token. mean, max: of the tokens' vectors. concat: first (with causal attention last), mean and max, one
    # after the other (ULMFiT, arXiv:1801.06146)
    "pool": "summary",
    **DEFAULTS,
}


def check(config) -> None:
    """Raises BadInput for the first of the keys above that has an invalid value."""
    keys = config.objective
    check_keys(config, choices={"objective.features": FEATURES}, shares=["objective.dropout"])
    if "pool" in keys:
        check_keys(config, choices={"objective.pool": pooling.POOLS})
        if keys.pool == "summary":
            hint = "summary reads the last states alone; use first"
            require(keys.features == "last", "objective.pool", config, hint)


class Mix(nn.Module):
    """The weighted mean of the states of all layers, by the softmax of learned weights, times a learned scale."""

    @nn.compact
    def __call__(self, states):
        """Returns [B, L, D]. states: those of N layers, each [B, L, D]."""
        weights = self.param("weights", nn.initializers.zeros, (len(states),), jnp.float32)
        scale = self.param("scale", nn.initializers.ones, (), jnp.float32)
        shares = scale * nn.softmax(weights)
        mixed = sum(share * x.astype(jnp.float32) for share, x in zip(shares, states, strict=True))
        return mixed.astype(states[0].dtype)


class Classifier(nn.Module):
    """A network with a dense layer on the vectors of tokens or, with `pool`, of packed sequences.

    is_summed: whether that layer reads the sum of the vectors of a row's packed sequences.
    has_lm: whether there is a head over the vocabulary beside it.
    """

    network: nn.Module
    outputs: int
    features: str
    dropout: float
    pool: str = ""
    is_summed: bool = False
    has_lm: bool = False

    def setup(self):
        head = self.network.head
        self.mix = Mix()
        self.lm = LMHead(head) if self.has_lm else None
        self.mlm = LMHead(head) if head.is_shared else None
        options = head.options
        self.label = Dense(self.outputs, options.initializer, options.gradient_dtype)

    def __call__(self, batch, keys):
        """Returns label_logits float32[B, L, C], or float32[B, S, C] with `pool`, S = 1 if it is a sum; and with
        `has_lm` lm_logits float32[B, L, V] of the last states."""
        states = self.network.states(batch, keys)
        if self.features == "mix":
            x = self.mix(states)
        elif self.features == "last4":
            x = jnp.concatenate(states[-4:], axis=-1)
        else:
            x = states[-1]
        if self.pool:
            x = pooling.pool(self.network, x, batch, self.pool)
        if self.mlm and x.shape[-1] == self.network.head.width:
            x = self.mlm(x)
        if self.is_summed:
            x = x.sum(axis=1, keepdims=True, dtype=jnp.float32)
        x = maybe_dropout(x, keys, DROPOUT, self.dropout)
        outputs = {"label_logits": self.label(x.astype(jnp.float32))}
        if self.has_lm:
            outputs["lm_logits"] = self.lm(states[-1], self.network.vocabulary_logits)
        return outputs
