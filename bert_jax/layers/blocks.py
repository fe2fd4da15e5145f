"""The layers of Transformer encoders.

B batch, L length, M memory length, D width, H heads, K head size, F hidden width, I inputs, O outputs, V vocabulary.

Activations have the compute data type (`config.dtype`); parameters are float32. Layer norm and softmax are computed in
float32, gradients of dense layers and word embeddings in `gradient_dtype`. keys: of dropout, see dropout.py.
"""

from functools import partial

import jax
import jax.numpy as jnp
from flax import linen as nn

from bert_jax.layers.dropout import maybe_dropout
from bert_jax.parallel import constraints
from bert_jax.parallel.mesh import VOCABULARY_MULTIPLE

ACTIVATIONS = {
    "gelu_tanh": partial(nn.gelu, approximate=True),
    "gelu": partial(nn.gelu, approximate=False),
    "relu": nn.relu,
}
# The score of a masked pair: so low that its probability is exactly zero in float32.
MASKED = -1e9


@partial(jax.custom_vjp, nondiff_argnums=(3,))
def affine(x, kernel, bias, gradient_dtype):
    """Returns x[..., I] @ kernel[I, O] + bias[O] in the dtype of x. bias: or None.

    The gradients of kernel and bias are summed over rows and devices in `gradient_dtype`. Differentiating through the
    cast of the kernel would round them to bfloat16 before they are summed over devices.
    """
    return _affine_forward(x, kernel, bias, gradient_dtype)[0]


def _affine_forward(x, kernel, bias, gradient_dtype):
    x, kernel = constraints.activation(x), kernel.astype(x.dtype)
    y = x @ kernel if bias is None else x @ kernel + bias.astype(x.dtype)
    return constraints.activation(y), (x, kernel, bias)


def sum_over_rows(a, b, dtype):
    """Returns dtype[I, O]: the product of a[..., I] and b[..., O] summed over all leading axes, in that dtype."""
    rows = tuple(range(a.ndim - 1))

    def product(a, b):
        return jax.lax.dot_general(a, b, ((rows, rows), ((), ())), preferred_element_type=dtype)

    def on_cpu(a, b):
        # XLA's CPU backend lacks some bfloat16 products with float32 sums. It transposes the left factor, a pass with
        # long strides: so the narrower factor goes there. The barrier keeps XLA from exchanging them again.
        a, b = a.astype(dtype), b.astype(dtype)
        if a.shape[-1] <= b.shape[-1]:
            return product(a, b)
        return jax.lax.optimization_barrier(product(b, a)).T

    return jax.lax.platform_dependent(a, b, cpu=on_cpu, default=product)


def _affine_backward(gradient_dtype, saved, gradient):
    x, kernel, bias = saved
    gradient = constraints.activation(gradient)
    rows = tuple(range(x.ndim - 1))
    d_kernel = sum_over_rows(x, gradient, gradient_dtype)
    d_x = constraints.activation(gradient @ kernel.T)
    if bias is None:
        return d_x, d_kernel.astype(jnp.float32), None
    d_bias = gradient.sum(rows, dtype=gradient_dtype)
    return d_x, d_kernel.astype(jnp.float32), d_bias.astype(jnp.float32)


affine.defvjp(_affine_forward, _affine_backward)


def sum_of_logits(gradient):
    """Returns float32[V]: gradient[..., V] summed over all leading axes."""

    def product(gradient):  # XLA's CPU backend takes 25 times as long for a sum of rows of 50,000
        ones = jnp.ones(gradient.shape[:-1], gradient.dtype)
        return jnp.tensordot(ones, gradient, ones.ndim)

    def total(gradient):
        return gradient.sum(tuple(range(gradient.ndim - 1)))

    return jax.lax.platform_dependent(gradient, cpu=product, default=total)


@partial(jax.custom_vjp, nondiff_argnums=(3,))
def project(x, table, bias, gradient_dtype):
    """Returns float32 x[..., D] @ table[V, D].T + bias[V], with factors in the dtype of x.

    The gradient of the table is summed in `gradient_dtype`, as in `affine`, and that of the bias in float32.
    """
    return _project_forward(x, table, bias, gradient_dtype)[0]


def _project_forward(x, table, bias, gradient_dtype):
    x, table = constraints.activation(x), table.astype(x.dtype)
    logits = jnp.einsum(
        "...d,vd->...v", x, constraints.table(table), preferred_element_type=jnp.float32
    )
    return constraints.logits(logits) + bias, (x, table)


def _project_backward(gradient_dtype, saved, gradient):
    x, table = saved
    d_bias = sum_of_logits(gradient)
    gradient = jax.lax.optimization_barrier(constraints.logits(gradient.astype(x.dtype)))
    d_table = constraints.sum_to_table(partial(sum_over_rows, dtype=gradient_dtype), gradient, x)
    d_x = constraints.activation(gradient @ constraints.table(table))
    return d_x, d_table.astype(jnp.float32), d_bias


project.defvjp(_project_forward, _project_backward)


class Dense(nn.Module):
    """A dense layer, x[..., I] -> [..., O], whose output is multiplied by `scale`."""

    features: int
    initializer: float
    gradient_dtype: jnp.dtype = jnp.float32
    scale: float = 1.0
    bias: bool = True

    @nn.compact
    def __call__(self, x):
        init = truncated_normal(self.initializer)
        kernel = self.param("kernel", init, (x.shape[-1], self.features), jnp.float32)
        bias = maybe_bias(self, self.features)
        if self.scale != 1:
            kernel, bias = jax.tree.map(lambda each: self.scale * each, (kernel, bias))
        return affine(x, kernel, bias, self.gradient_dtype)


def maybe_bias(module, size: int):
    """Returns the parameter `bias`, float32[size], of a module; None if its field `bias` is False."""
    zeros = nn.initializers.zeros
    return module.param("bias", zeros, (size,), jnp.float32) if module.bias else None


def truncated_normal(deviation: float):
    """Returns TensorFlow's truncated normal initializer: a normal of this standard deviation, cut at two deviations.

    The values have 0.88 of that deviation; unlike Flax's, this initializer does not correct for it.
    """

    def init(key, shape, dtype=jnp.float32):
        return deviation * jax.random.truncated_normal(key, -2, 2, shape, dtype)

    return init


@partial(jax.custom_vjp, nondiff_argnums=(3, 4))
def normalize(x, scale, bias, epsilon: float, dtype):
    """Returns layer norm dtype[..., D] of x[..., D] with scale[D] and bias[D] (or None); computed in float32.

    The backward pass is written out so that its two sums over D do not depend on each other: XLA can fuse both into the
    matrix product that precedes them. Automatic differentiation would compute the second sum from the first.
    """
    return _normalize_forward(x, scale, bias, epsilon, dtype)[0]


def _normalize_forward(x, scale, bias, epsilon, dtype):
    mean, inverse = _statistics(x, epsilon)
    y = (x.astype(jnp.float32) - mean) * inverse * scale
    y = y if bias is None else y + bias
    return y.astype(dtype), (x, mean, inverse, scale, bias)


def _statistics(x, epsilon):
    """Returns the means and the reciprocal standard deviations over D, float32[..., 1] each.

    The variance of float32 takes two passes: the one-pass formula E[x^2] - E[x]^2 errs by 5e-4 if the mean is 30
    deviations. For 16-bit inputs that is less than their own rounding, so they take one pass, which XLA can fuse into
    the matrix product that precedes it.
    """
    is_rounded = x.dtype.itemsize == 2
    x = x.astype(jnp.float32)
    mean = x.mean(-1, keepdims=True)
    if not is_rounded:
        variance = jnp.square(x - mean).mean(-1, keepdims=True)
    else:
        variance = jnp.maximum(jnp.square(x).mean(-1, keepdims=True) - jnp.square(mean), 0)
    return mean, jax.lax.rsqrt(variance + epsilon)


def _normalize_backward(epsilon, dtype, saved, gradient):
    x, mean, inverse, scale, bias = saved
    rows = tuple(range(x.ndim - 1))
    normal = (x.astype(jnp.float32) - mean) * inverse
    gradient = gradient.astype(jnp.float32)
    d_scale = (gradient * normal).sum(rows)
    d_bias = None if bias is None else gradient.sum(rows)
    gradient = gradient * scale
    along = (gradient * normal).mean(-1, keepdims=True)
    d_x = inverse * (gradient - gradient.mean(-1, keepdims=True) - normal * along)
    return d_x.astype(x.dtype), d_scale, d_bias


normalize.defvjp(_normalize_forward, _normalize_backward)


class LayerNorm(nn.Module):
    """Layer normalization (arXiv:1607.06450): x[..., D] -> dtype[..., D]."""

    epsilon: float
    dtype: jnp.dtype
    bias: bool = True

    @nn.compact
    def __call__(self, x):
        scale = self.param("scale", nn.initializers.ones, x.shape[-1:], jnp.float32)
        return normalize(x, scale, maybe_bias(self, x.shape[-1]), self.epsilon, self.dtype)


class Attention(nn.Module):
    """Multi-head self-attention, x[B, L, D] -> [B, L, D]; attend(q, k, v, keys): see `attention.make`."""

    heads: int
    initializer: float
    out_initializer: float
    gradient_dtype: jnp.dtype
    bias: bool

    @nn.compact
    def __call__(self, x, attend, keys):
        width = x.shape[-1]
        dense = partial(Dense, width, gradient_dtype=self.gradient_dtype, bias=self.bias)

        def heads(name, scale=1.0):
            y = dense(self.initializer, name=name, scale=scale)(x)
            return y.reshape(*y.shape[:-1], self.heads, width // self.heads)

        # The weights are scaled rather than the queries: they are fewer, and for a head size of 64 this is exact.
        q_BLHK = heads("query", scale=(width // self.heads) ** -0.5)
        mixed_BLHK = attend(q_BLHK, heads("key"), heads("value"), keys)
        return dense(self.out_initializer, name="out")(mixed_BLHK.reshape(x.shape))


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
    activation: str
    initializer: float
    out_initializer: float
    gradient_dtype: jnp.dtype
    bias: bool
    gated: bool

    @nn.compact
    def __call__(self, x):
        dense = partial(Dense, gradient_dtype=self.gradient_dtype, bias=self.bias)
        hidden = dense(self.hidden, self.initializer, name="up")(x)
        if self.gated:
            gate = dense(self.hidden, self.initializer, name="gate")(x)
            hidden = gated(hidden, gate, self.activation)
        else:
            hidden = ACTIVATIONS[self.activation](hidden)
        return dense(x.shape[-1], self.out_initializer, name="down")(hidden)


class Block(nn.Module):
    """A Transformer block: attention and a feed-forward layer, each added to its input.

    norm: post, if the sums are normalized, norm(x + layer(x)) (arXiv:1706.03762); pre, if the inputs are, x +
    layer(norm(x)), but for the first block's attention, whose input is normalized already. dropouts: the rates on the
    outputs of both layers. initializer: the standard deviation of the weights; out_initializer: of those whose output
    is added to the stream.
    """

    heads: int
    hidden: int
    activation: str
    dropouts: tuple[float, float]
    initializer: float
    out_initializer: float
    epsilon: float
    gradient_dtype: jnp.dtype
    norm: str = "post"
    gated: bool = False
    bias: bool = True
    is_first: bool = False

    @nn.compact
    def __call__(self, x, attend, keys):
        common = dict(
            initializer=self.initializer,
            out_initializer=self.out_initializer,
            gradient_dtype=self.gradient_dtype,
            bias=self.bias,
        )
        attention = Attention(self.heads, name="attention", **common)
        feed_forward = FeedForward(
            self.hidden, self.activation, gated=self.gated, name="feed_forward", **common
        )

        def add(x, layer, number, name, is_normal=False):
            norm = LayerNorm(self.epsilon, x.dtype, self.bias, name=name)
            y = layer(norm(x) if self.norm == "pre" and not is_normal else x)
            y = x + maybe_dropout(y, keys, number, self.dropouts[number - 1])
            return constraints.stream(norm(y) if self.norm == "post" else y)

        mix = partial(attention, attend=attend, keys=keys)
        x = add(x, mix, 1, "attention_norm", self.is_first)
        return add(x, feed_forward, 2, "feed_forward_norm")


def padded_size(vocabulary_size: int) -> int:
    """Returns the vocabulary size rounded up, for the matrix units and for sharding."""
    return -(-vocabulary_size // VOCABULARY_MULTIPLE) * VOCABULARY_MULTIPLE


def zero_padding_rows(init, rows: int):
    """Returns an initializer like `init`, except that the rows from `rows` on, the padding, are zero."""

    def padded(key, shape, dtype=jnp.float32):
        real = jnp.arange(shape[0])[:, None] < rows
        return jnp.where(real, init(key, shape, dtype), 0)

    return padded


class Embedder(nn.Module):
    """The sum of word, position and segment embeddings: int32[B, L] each -> float32[B, L, D].

    The word embeddings are rounded to `dtype`. A table without rows is left out.
    """

    vocabulary_size: int
    max_length: int
    type_vocabulary: int
    width: int
    initializer: float
    gradient_dtype: jnp.dtype
    dtype: jnp.dtype = jnp.float32

    def setup(self):
        init = truncated_normal(self.initializer)
        shape = padded_size(self.vocabulary_size), self.width
        self.words = self.param("words", zero_padding_rows(init, self.vocabulary_size), shape)
        if self.max_length:
            self.position_table = self.param("positions", init, (self.max_length, self.width))
        if self.type_vocabulary:
            self.segment_table = self.param("segments", init, (self.type_vocabulary, self.width))

    def __call__(self, tokens, positions, segments):
        vectors = constraints.lookup(self.words, tokens, self.dtype, self.gradient_dtype)
        if self.max_length:
            vectors += self.position_table.at[positions].get(mode="promise_in_bounds")
        if self.type_vocabulary:
            vectors += self.segment_table.at[segments].get(mode="promise_in_bounds")
        return constraints.stream(vectors)

    def vocabulary_logits(self, x, bias):
        """Returns float32 logits [..., padded V] of x[..., D] by the tied word embeddings; MASKED in the padding."""
        logits = project(x, self.words, bias, self.gradient_dtype)
        real = jnp.arange(self.words.shape[0]) < self.vocabulary_size
        return jnp.where(real, logits, MASKED)
