"""Transformer blocks: attention and feed-forward layers.

B batch, L length, D width, H heads, K head size, F hidden width.

keys: of dropout, see dropout.py.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn

from bert_jax import prng
from bert_jax.layers import attention, gpu, rotary
from bert_jax.layers.attention_spec import Cache, Context, Mask, Memory, Spec
from bert_jax.layers.dense import Dense, joint_affine
from bert_jax.layers.dropout import maybe_dropout
from bert_jax.layers.norm import LayerNorm
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


class Attention(nn.Module):
    """Multi-head attention of x[B, L, D] -> [B, L, D], to itself or to a second sequence."""

    heads: int
    spec: Spec
    options: LayerOptions

    def setup(self):
        options = self.options
        width = self.heads * self.spec.head_size
        dense = partial(Dense, width, gradient_dtype=options.gradient_dtype, bias=options.bias)
        # The weights are scaled rather than the queries: they are fewer, and for a head size of 64 this is exact.
        self.query = dense(options.initializer, scale=self.spec.head_size**-0.5)
        self.key = dense(options.initializer)
        self.value = dense(options.initializer)
        self.out = dense(options.out_initializer)

    def split_heads(self, y):
        return y.reshape(*y.shape[:-1], self.heads, self.spec.head_size)

    def keys_and_values(self, states):
        return self.split_heads(self.key(states)), self.split_heads(self.value(states))

    def queries_keys_and_values(self, x) -> list:
        """Returns three arrays [B, L, H, K], of x[B, L, D]."""
        layers = self.query, self.key, self.value
        # Heads that are sharded cannot share a product.
        if gpu.is_target() and constraints.tensor_parts() == 1:
            weights = [layer.weights(x.shape[-1]) for layer in layers]
            kernels = [kernel for kernel, _ in weights]
            biases = [bias for _, bias in weights]
            vectors = joint_affine(x, kernels, biases, self.options.gradient_dtype)
        else:
            vectors = [layer(x) for layer in layers]
        return [self.split_heads(y) for y in vectors]

    def memorize(self, states) -> Memory:
        """Returns the keys and values of a second sequence, of its states [B, M, D]."""
        return Memory(*(y.swapaxes(1, 2) for y in self.keys_and_values(states)))

    def __call__(self, x, mask: Mask, keys, context=None, cache: Cache | None = None):
        """Returns ([B, L, D], the cache with the tokens of x, or None).

        context: the second sequence: its states [B, M, D], or what `memorize` returns for them.
        cache: the tokens in front of x.
        """
        spec = self.spec
        if context is None:
            q_BLHK, k_BMHK, v_BMHK = self.queries_keys_and_values(x)
        else:
            q_BLHK = self.split_heads(self.query(x))
            if isinstance(context, Memory):
                k_BMHK, v_BMHK = (y.swapaxes(1, 2) for y in context)
            else:
                k_BMHK, v_BMHK = self.keys_and_values(context)
        if self.is_initializing() or cache is not None:
            # `init` runs on a short row, which kernels do not support. Parameters are the same.
            spec = spec._replace(implementation="xla")
        if cache is not None:
            if mask.angles:
                q_BLHK = rotary.rotate(q_BLHK, *mask.angles)
                k_BMHK = rotary.rotate(k_BMHK, *mask.angles)
                mask = mask._replace(angles=())
            cache = cache.append(k_BMHK, v_BMHK)
            k_BMHK = cache.keys.swapaxes(1, 2)
            v_BMHK = cache.values.swapaxes(1, 2)
        mixed_BLHK = attention.attend(spec, mask, q_BLHK, k_BMHK, v_BMHK, keys)
        return self.out(mixed_BLHK.reshape(x.shape)), cache


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
    added to its input.

    norm: post, if the sums are normalized, norm(x + layer(x)) (arXiv:1706.03762); pre, if the inputs are, x +
    layer(norm(x)).
    is_normal: whether x is normalized already, so that a pre-norm block's attention takes it as it is.
    """

    heads: int
    hidden: int
    spec: Spec
    options: LayerOptions
    dropouts: Dropouts
    norm: str = "post"
    gated: bool = False
    is_normal: bool = False

    def setup(self):
        options = self.options
        make_norm = partial(LayerNorm, options.epsilon, bias=options.bias)
        self.attention = Attention(self.heads, self.spec, options)
        self.attention_norm = make_norm()
        self.context = Attention(self.heads, self.spec.to_context(), options)
        self.context_norm = make_norm()
        self.feed_forward = FeedForward(self.hidden, options, self.gated, self.dropouts.hidden)
        self.feed_forward_norm = make_norm()

    def memorize(self, states) -> Memory:
        """Returns the keys and values of the second sequence, of its states [B, M, D]."""
        return self.context.memorize(states)

    def __call__(self, x, mask: Mask, keys, context: Context | None = None, cache=None):
        """Returns ([B, L, D], the cache with the tokens of x, or None). cache: a Cache of the tokens in front of x."""
        y = x if self.is_normal else self.normalize_input(x, self.attention_norm)
        y, cache = self.attention(y, mask, keys, cache=cache)
        y = maybe_dropout(y, keys, ATTENTION, self.dropouts.attention)
        x = self.add(x, y, self.attention_norm)
        if context is not None:
            context_keys = None if keys is None else prng.fold(keys, jnp.uint32(CONTEXT))
            y = self.normalize_input(x, self.context_norm)
            y, _ = self.context(y, context.mask, context_keys, context.source)
            y = maybe_dropout(y, context_keys, ATTENTION, self.dropouts.context)
            x = self.add(x, y, self.context_norm)
        y = self.feed_forward(self.normalize_input(x, self.feed_forward_norm), keys)
        y = maybe_dropout(y, keys, FEED_FORWARD, self.dropouts.feed_forward)
        return self.add(x, y, self.feed_forward_norm), cache

    def normalize_input(self, x, norm: LayerNorm):
        return norm(x) if self.norm == "pre" else x

    def add(self, x, y, norm: LayerNorm):
        """Returns the sum of a layer's input x and output y."""
        y = x + y
        return constraints.stream(norm(y) if self.norm == "post" else y)


def make_blocks(specs: list[Spec], remat: str, is_normal: bool, **fields) -> list[Block]:
    """Returns a block for each of the specs.

    remat: `train.remat`; full: the backward pass computes blocks again.
    is_normal: whether the input of the first block is normalized.
    fields: others of `Block`.
    """
    block = nn.remat(Block) if remat == "full" else Block
    blocks = [block(spec=specs[0], is_normal=is_normal, **fields)]
    blocks += [block(spec=spec, **fields) for spec in specs[1:]]
    return blocks


class Inputs(NamedTuple):
    """What each block of a network has besides the states."""

    masks: list[Mask]
    contexts: list[Context] | None = None
    caches: list[Cache] | None = None
    first: int = 1  # number of the first block's dropout keys


def apply_blocks(blocks: list[Block], x, keys, inputs: Inputs) -> tuple[list, list]:
    """Returns x and the output of each block, [B, L, D] each, and their caches with the tokens of x, or Nones."""
    nothing = [None] * len(blocks)
    contexts = inputs.contexts or nothing
    caches = inputs.caches or nothing
    states = [x]
    longer = []
    for number, block in enumerate(blocks):
        layer_keys = None
        if keys is not None:
            layer_keys = prng.fold(keys, jnp.uint32(inputs.first + number))
        x, cache = block(x, inputs.masks[number], layer_keys, contexts[number], caches[number])
        states.append(x)
        longer.append(cache)
    return states, longer
