"""Transformer blocks: attention and feed-forward layers.

B batch, L length, D width, H heads, K head size, F hidden width.

keys: of dropout, see dropout.py.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn

from bert_jax import prng
from bert_jax.layers import attention, attention_xla, gpu
from bert_jax.layers.attention_spec import (
    OWN_WEIGHTS,
    Cache,
    Mask,
    Spec,
)
from bert_jax.layers.dense import Dense, joint_affine
from bert_jax.layers.dropout import maybe_dropout
from bert_jax.parallel import constraints

ACTIVATIONS = {
    "gelu_tanh": partial(nn.gelu, approximate=True),
    "gelu": partial(nn.gelu, approximate=False),
    "relu": nn.relu,
}


# Numbers of the draws of a block; 0 is the dropout of attention probabilities.
ATTENTION, FEED_FORWARD, CONTEXT, HIDDEN = 1, 2, 3, 4


class LayerOptions(NamedTuple):
    """The options that all layers of a network share."""

    activation: str  # of ACTIVATIONS
    initializer: float  # standard deviation of weights
    # That of weights whose output is added to the stream, and of the masked-LM head.
    out_initializer: float
    epsilon: float  # of layer norms
    gradient_dtype: jnp.dtype
    bias: bool  # whether layers have biases


class Dropouts(NamedTuple):
    """The dropout rates of a block; that on attention probabilities belongs to its Spec."""

    attention: float = 0.0  # on the output of attention
    context: float = 0.0  # on the output of attention to a second sequence
    hidden: float = 0.0  # on the hidden layer of the feed-forward layer
    feed_forward: float = 0.0  # on the output of the feed-forward layer


class Inputs(NamedTuple):
    """The inputs of a layer besides its states x[B, L, D]. All are arrays: under `remat`, numbers become tracers."""

    mask: Mask
    # States [B, M, D] that keys and values are made of instead of x; of a second sequence, or what `memorize` returns.
    source: Any = None
    context: "Inputs | None" = None  # of the attention to a second sequence, its source
    cache: Cache | None = None  # of the tokens in front of x
    extra: Any = None  # what a network gives its own layers


class Attention(nn.Module):
    """Multi-head attention of x[B, L, D] -> [B, L, width]. A subclass replaces `queries`, `keys_and_values`, `bias`,
    `probabilities` or `mix`.

    scale: of the scores; 0: head_size ** -0.5.
    width: of the output; 0: that of all heads.
    """

    heads: int
    spec: Spec
    options: LayerOptions
    scale: float = 0.0
    width: int = 0

    def setup(self):
        options = self.options
        size = self.spec.head_size
        width = self.heads * size
        dense = partial(Dense, gradient_dtype=options.gradient_dtype, bias=options.bias)
        # The weights are scaled rather than the queries: they are fewer, and for a head size of 64 this is exact.
        self.query = dense(width, options.initializer, scale=self.scale or size**-0.5)
        self.key = dense(width, options.initializer)
        self.value = dense(width, options.initializer)
        self.out = dense(self.width or width, options.out_initializer)

    def split_heads(self, y):
        return y.reshape(*y.shape[:-1], self.heads, self.spec.head_size)

    @classmethod
    def needs(cls) -> tuple[str, ...]:
        """Returns what no kernel computes, for `Spec.needs`: OWN_WEIGHTS if a subclass replaces some of it."""
        names = "bias", "probabilities", "mix"
        is_own = any(getattr(cls, name) is not getattr(Attention, name) for name in names)
        return (OWN_WEIGHTS,) if is_own else ()

    def queries(self, x):
        """Returns [B, L, H, K], already scaled, of x[B, L, D]."""
        return self.split_heads(self.query(x))

    def keys_and_values(self, states) -> tuple:
        """Returns two arrays [B, M, H, K], of states [B, M, D]."""
        return self.split_heads(self.key(states)), self.split_heads(self.value(states))

    def bias(self, q_BLHK, k_BMHK, inputs: Inputs):
        """Returns float32[B, H, L, M], which is added to the scores, or None; axes of size 1 are repeated. The queries
        are scaled, and both are rotated."""

    def probabilities(self, q_BLHK, k_BMHK, inputs: Inputs):
        """Returns float32[B, H, L, M], without dropout. `capture` reads them."""
        bias = self.bias(q_BLHK, k_BMHK, inputs)
        return attention_xla.probabilities_of(self.spec, inputs.mask, q_BLHK, k_BMHK, bias)

    def mix(self, p_BHLM, v_BMHK, inputs: Inputs):
        """Returns [B, L, H, K]: the values weighted by probabilities, after dropout."""
        return jnp.einsum("bhlm,bmhk->blhk", p_BHLM, v_BMHK)

    def project(self, x, source) -> tuple:
        """Returns queries of x, keys and values of `source`: one product, if a GPU computes all three of x."""
        if isinstance(source, tuple):
            return self.queries(x), *(y.swapaxes(1, 2) for y in source)
        methods = type(self).queries, type(self).keys_and_values
        is_own = methods != (Attention.queries, Attention.keys_and_values)
        # Heads that are sharded cannot share a product.
        is_split = constraints.tensor_parts() > 1
        if is_own or source is not None or is_split or not gpu.is_target():
            return self.queries(x), *self.keys_and_values(x if source is None else source)
        layers = self.query, self.key, self.value
        kernels, biases = zip(*(layer.weights(x.shape[-1]) for layer in layers), strict=True)
        vectors = joint_affine(x, [*kernels], [*biases], self.options.gradient_dtype)
        return tuple(map(self.split_heads, vectors))

    def memorize(self, states) -> tuple:
        """Returns the keys and values [B, H, M, K] of a second sequence, of its states [B, M, D]. Heads come first, as
        in a Cache."""
        return tuple(y.swapaxes(1, 2) for y in self.keys_and_values(states))

    def weigh(self, q_BLHK, k_BMHK, v_BMHK, inputs: Inputs, keys):
        """Returns [B, L, H, K], by `probabilities` and `mix`."""
        p_BHLM = self.probabilities(q_BLHK, k_BMHK, inputs)
        p_BHLM = maybe_dropout(p_BHLM, keys, 0, self.spec.dropout)
        return self.mix(p_BHLM.astype(v_BMHK.dtype), v_BMHK, inputs)

    def __call__(self, x, inputs: Inputs, keys) -> tuple:
        """Returns ([B, L, width], the cache with the tokens of x, or None)."""
        spec = self.spec
        cache = inputs.cache
        q_BLHK, k_BMHK, v_BMHK = self.project(x, inputs.source)
        is_captured = self.is_mutable_collection("intermediates")
        is_own = self.needs() or self.is_initializing()
        if is_own or is_captured or cache is not None:
            mask, q_BLHK, k_BMHK = attention.rotate(inputs.mask, q_BLHK, k_BMHK)
            inputs = inputs._replace(mask=mask)
        if cache is not None:
            spec = spec._replace(implementation="xla", remat=False)
            cache = cache.append(k_BMHK, v_BMHK)
            k_BMHK = cache.keys.swapaxes(1, 2)
            v_BMHK = cache.values.swapaxes(1, 2)
        vectors = q_BLHK, k_BMHK, v_BMHK
        if is_own:
            weigh = self.weigh
            is_recomputed = attention.is_recomputed(spec, max(x.shape[1], k_BMHK.shape[1]))
            # In jax.checkpoint, what is captured, and parameters that are made, would be tracers that have ended.
            if is_recomputed and not (is_captured or self.is_initializing()):
                weigh = jax.checkpoint(weigh)
            mixed_BLHK = weigh(*vectors, inputs, keys)
        else:
            if is_captured:
                self.probabilities(q_BLHK, k_BMHK, inputs)
            mixed_BLHK = attention.attend(spec, inputs.mask, *vectors, keys)
        return self.out(mixed_BLHK.reshape(*x.shape[:-1], -1)), cache


@partial(jax.custom_vjp, nondiff_argnums=(1,))
def activate(x, activation: str):
    """Returns activation(x). The backward pass reads x alone: without the barrier, a GPU would compute parts of the
    derivative in the forward pass, and write them to memory."""
    return ACTIVATIONS[activation](x)


def _activate_forward(x, activation):
    return activate(x, activation), x


def _activate_backward(activation, x, gradient):
    _, pull_back = jax.vjp(ACTIVATIONS[activation], gpu.barrier(x))
    return pull_back(gradient)


activate.defvjp(_activate_forward, _activate_backward)


@partial(jax.custom_vjp, nondiff_argnums=(2,))
def gated(up, gate, activation: str):
    """Returns activation(up) * gate.

    The result and both gradients are written to memory, for XLA would compute them again in each matrix product that
    reads them: 1.4 of 9 million cycles of a layer of ModernBERT-base, 16 x 1,024 tokens, on v5e. For the backward pass
    see `activate`.
    """
    return _gated_forward(up, gate, activation)[0]


def _gated_forward(up, gate, activation):
    hidden = ACTIVATIONS[activation](up) * gate
    return jax.lax.optimization_barrier(hidden), (up, gate)


def _gated_backward(activation, saved, gradient):
    saved = gpu.barrier(saved)
    _, pull_back = jax.vjp(lambda up, gate: ACTIVATIONS[activation](up) * gate, *saved)
    return jax.lax.optimization_barrier(pull_back(gradient))


gated.defvjp(_gated_forward, _gated_backward)


class FeedForward(nn.Module):
    """The feed-forward layer, x[B, L, D] -> [B, L, D], with a hidden layer of width F.

    gated: whether the hidden layer is multiplied by another linear one (arXiv:2002.05202).
    dropout: the rate on the hidden layer.
    """

    hidden: int
    options: LayerOptions
    gated: bool
    dropout: float = 0.0

    @nn.compact
    def __call__(self, x, keys):
        options = self.options
        dense = partial(Dense, gradient_dtype=options.gradient_dtype, bias=options.bias)
        hidden = dense(self.hidden, options.initializer, name="up")(x)
        if self.gated:
            gate = dense(self.hidden, options.initializer, name="gate")(x)
            hidden = gated(hidden, gate, options.activation)
        else:
            hidden = activate(hidden, options.activation)
        hidden = maybe_dropout(hidden, keys, HIDDEN, self.dropout)
        return dense(x.shape[-1], options.out_initializer, name="down")(hidden)


class Block(nn.Module):
    """A Transformer block: attention, attention to a second sequence if there is one, and a feed-forward layer, each
    added to its input. They are made with `parent=None`.

    norm: post, if the sums are normalized, norm(x + layer(x)) (arXiv:1706.03762); pre, if the inputs are, x +
    layer(norm(x)).
    is_normal: whether x and `source` are normalized already: a pre-norm block's attention takes them as they are.
    """

    attention: nn.Module
    feed_forward: nn.Module
    make_norm: Callable[[], nn.Module]
    dropouts: Dropouts = Dropouts()
    norm: str = "post"
    context: nn.Module | None = None
    is_normal: bool = False

    def setup(self):
        self.attention_norm = self.make_norm()
        self.context_norm = self.make_norm()
        self.feed_forward_norm = self.make_norm()

    def memorize(self, states) -> tuple:
        """Returns what `Attention.memorize` does."""
        return self.context.memorize(states)

    def __call__(self, x, inputs: Inputs, keys) -> tuple:
        """Returns ([B, L, D], the cache with the tokens of x, or None)."""
        norm = None if self.is_normal else self.attention_norm
        y = self.normalize_input(x, norm)
        if inputs.source is not None:
            inputs = inputs._replace(source=self.normalize_input(inputs.source, norm))
        y, cache = self.attention(y, inputs, keys)
        y = maybe_dropout(y, keys, ATTENTION, self.dropouts.attention)
        x = self.add(x, y, self.attention_norm)
        context = inputs.context
        if context is not None:
            context_keys = None if keys is None else prng.fold(keys, jnp.uint32(CONTEXT))
            y = self.normalize_input(x, self.context_norm)
            y, _ = self.context(y, context, context_keys)
            y = maybe_dropout(y, context_keys, ATTENTION, self.dropouts.context)
            x = self.add(x, y, self.context_norm)
        y = self.feed_forward(self.normalize_input(x, self.feed_forward_norm), keys)
        y = maybe_dropout(y, keys, FEED_FORWARD, self.dropouts.feed_forward)
        return self.add(x, y, self.feed_forward_norm), cache

    def normalize_input(self, x, norm):
        return norm(x) if norm and self.norm == "pre" else x

    def add(self, x, y, norm):
        """Returns the sum of a layer's input x and output y."""
        y = x + y
        return constraints.stream(norm(y) if self.norm == "post" else y)


def apply_blocks(
    blocks: list, x, keys, inputs: list[Inputs], final_norm=None, first: int = 1
) -> tuple[list, list]:
    """Returns x and the output of each block, [B, L, D] each, and their caches with the tokens of x, or Nones.

    final_norm: of the last output, or None.
    first: number of the first block's dropout keys.
    """
    states = [x]
    caches = []
    for number, (block, of_layer) in enumerate(zip(blocks, inputs, strict=True), first):
        layer_keys = None if keys is None else prng.fold(keys, jnp.uint32(number))
        x, cache = block(x, of_layer, layer_keys)
        states.append(x)
        caches.append(cache)
    if final_norm:
        states[-1] = final_norm(x)
    return states, caches
