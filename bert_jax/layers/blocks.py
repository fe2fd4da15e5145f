"""Transformer blocks: attention and feed-forward layers.

B batch, L length, D width, H heads, K head size, F hidden width.

keys: of dropout, see dropout.py.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn

from bert_jax.layers.dense import Dense
from bert_jax.layers.dropout import maybe_dropout
from bert_jax.layers.norm import LayerNorm
from bert_jax.parallel import constraints

ACTIVATIONS = {
    "gelu_tanh": partial(nn.gelu, approximate=True),
    "gelu": partial(nn.gelu, approximate=False),
    "relu": nn.relu,
}


class LayerOptions(NamedTuple):
    """The options that all layers of a network share."""

    activation: str  # of ACTIVATIONS
    initializer: float  # standard deviation of weights
    # That of weights whose output is added to the stream, and of the masked-LM head.
    out_initializer: float
    epsilon: float  # of layer norms
    gradient_dtype: jnp.dtype
    bias: bool  # whether layers have biases


class Attention(nn.Module):
    """Multi-head self-attention, x[B, L, D] -> [B, L, D]; attend(q, k, v, keys): see `attention.make`."""

    heads: int
    options: LayerOptions

    @nn.compact
    def __call__(self, x, attend, keys):
        options = self.options
        width = x.shape[-1]
        size = width // self.heads
        dense = partial(Dense, width, gradient_dtype=options.gradient_dtype, bias=options.bias)

        def split_heads(name, scale=1.0):
            y = dense(options.initializer, name=name, scale=scale)(x)
            return y.reshape(*y.shape[:-1], self.heads, size)

        # The weights are scaled rather than the queries: they are fewer, and for a head size of 64 this is exact.
        q_BLHK = split_heads("query", scale=size**-0.5)
        mixed_BLHK = attend(q_BLHK, split_heads("key"), split_heads("value"), keys)
        return dense(options.out_initializer, name="out")(mixed_BLHK.reshape(x.shape))


@partial(jax.custom_vjp, nondiff_argnums=(2,))
def gated(up, gate, activation: str):
    """Returns activation(up) * gate.

    The result and both gradients are written to memory, for XLA would compute them again in each matrix product that
    reads them: 1.4 of 9 million cycles of a layer of ModernBERT-base, 16 x 1,024 tokens, on v5e.
    """
    return _gated_forward(up, gate, activation)[0]


def _gated_forward(up, gate, activation):
    hidden = ACTIVATIONS[activation](up) * gate
    return jax.lax.optimization_barrier(hidden), (up, gate)


def _gated_backward(activation, saved, gradient):
    _, pull_back = jax.vjp(lambda up, gate: ACTIVATIONS[activation](up) * gate, *saved)
    return jax.lax.optimization_barrier(pull_back(gradient))


gated.defvjp(_gated_forward, _gated_backward)


class FeedForward(nn.Module):
    """The feed-forward layer, x[B, L, D] -> [B, L, D], with a hidden layer of width F.

    gated: whether the hidden layer is multiplied by another linear one (arXiv:2002.05202).
    """

    hidden: int
    options: LayerOptions
    gated: bool

    @nn.compact
    def __call__(self, x):
        options = self.options
        dense = partial(Dense, gradient_dtype=options.gradient_dtype, bias=options.bias)
        hidden = dense(self.hidden, options.initializer, name="up")(x)
        if self.gated:
            gate = dense(self.hidden, options.initializer, name="gate")(x)
            hidden = gated(hidden, gate, options.activation)
        else:
            hidden = ACTIVATIONS[options.activation](hidden)
        return dense(x.shape[-1], options.out_initializer, name="down")(hidden)


class Block(nn.Module):
    """A Transformer block: attention and a feed-forward layer, each added to its input.

    norm: post, if the sums are normalized, norm(x + layer(x)) (arXiv:1706.03762); pre, if the inputs are, x +
    layer(norm(x)), but for the first block's attention, whose input is normalized already.
    dropouts: the rates on the outputs of both layers.
    """

    heads: int
    hidden: int
    dropouts: tuple[float, float]
    options: LayerOptions
    norm: str = "post"
    gated: bool = False
    is_first: bool = False

    @nn.compact
    def __call__(self, x, attend, keys):
        attention = Attention(self.heads, self.options, name="attention")
        feed_forward = FeedForward(self.hidden, self.options, self.gated, name="feed_forward")

        def add(x, layer, number, name, is_normal=False):
            norm = LayerNorm(self.options.epsilon, x.dtype, self.options.bias, name=name)
            y = norm(x) if self.norm == "pre" and not is_normal else x
            y = x + maybe_dropout(layer(y), keys, number, self.dropouts[number - 1])
            return constraints.stream(norm(y) if self.norm == "post" else y)

        mix = partial(attention, attend=attend, keys=keys)
        x = add(x, mix, 1, "attention_norm", self.is_first)
        return add(x, feed_forward, 2, "feed_forward_norm")
