"""What every Transformer encoder is made of.

B batch, L length, M memory length, D width, H heads, K head size, F hidden width, I inputs, O outputs.

Activations have the dtype of the compute, parameters are float32. Layer norms, softmax and gradients of parameters are
computed in float32 whatever that dtype is. Dropout is on where a layer gets `keys` (uint32[B], one a row) and off
where they are None.
"""

from functools import partial

import jax
import jax.numpy as jnp
from flax import linen as nn

from bert_jax import prng
from bert_jax.parallel import constraints

ACTIVATIONS = {
    "gelu_tanh": partial(nn.gelu, approximate=True),
    "gelu": partial(nn.gelu, approximate=False),
    "relu": nn.relu,
}
# Added to the scores of masked pairs; large enough that their probabilities are exactly zero in float32.
MASKED = -1e9


@partial(jax.custom_vjp, nondiff_argnums=(2,))
def dropout(x, keys, rate: float):
    """Zeroes elements of x[B, ...] with probability `rate` and scales the rest; a function of (keys[B], position).

    The mask is never stored: the backward pass computes it again from the keys, which costs less than reading it.
    """
    counter = jnp.zeros((), jnp.uint32)
    for axis in range(1, x.ndim):
        counter = counter * jnp.uint32(x.shape[axis])
        counter = counter + jax.lax.broadcasted_iota(jnp.uint32, (1, *x.shape[1:]), axis)
    bits = prng.fold(keys.reshape(-1, *(1,) * (x.ndim - 1)), counter)
    kept = bits >= jnp.uint32(round(rate * 2**32))
    return jnp.where(kept, x * jnp.asarray(1 / (1 - rate), x.dtype), 0)


def _dropout_forward(x, keys, rate):
    return dropout(x, keys, rate), keys


def _dropout_backward(rate, keys, gradient):
    return dropout(gradient, keys, rate), None


dropout.defvjp(_dropout_forward, _dropout_backward)


def maybe_dropout(x, keys, place: int, rate: float):
    """Dropout at one of the places of a layer, if there are keys and a rate."""
    if keys is None or rate == 0:
        return x
    return dropout(x, prng.fold(keys, jnp.uint32(place)), rate)


@partial(jax.custom_vjp, nondiff_argnums=(3,))
def affine(x, kernel, bias, gradient_dtype):
    """x[..., I] @ kernel[I, O] + bias[O] in the dtype of x.

    The gradients of kernel and bias are summed, over rows and over devices, in `gradient_dtype`: differentiating
    through the cast of the kernel would round them to bfloat16 before the devices' sum.
    """
    return _affine_forward(x, kernel, bias, gradient_dtype)[0]


def _affine_forward(x, kernel, bias, gradient_dtype):
    x, kernel = constraints.activation(x), kernel.astype(x.dtype)
    return constraints.activation(x @ kernel + bias.astype(x.dtype)), (x, kernel)


def sum_over_rows(a, b, dtype):
    """dtype[I, O] of a[..., I] and b[..., O], summed over all rows in that dtype."""
    rows = tuple(range(a.ndim - 1))

    def product(a, b):
        return jax.lax.dot_general(a, b, ((rows, rows), ((), ())), preferred_element_type=dtype)

    def widened(a, b):  # XLA cannot run every product of bfloat16 that is summed in float32 on CPUs
        return product(a.astype(dtype), b.astype(dtype))

    return jax.lax.platform_dependent(a, b, cpu=widened, default=product)


def _affine_backward(gradient_dtype, saved, gradient):
    x, kernel = saved
    gradient = constraints.activation(gradient)
    rows = tuple(range(x.ndim - 1))
    # The factor on the left is turned, which costs a CPU's compiler a pass with long strides: the narrower one is.
    is_wide = x.shape[-1] > gradient.shape[-1]
    factors = (gradient, x) if is_wide else (x, gradient)
    d_kernel = sum_over_rows(*factors, gradient_dtype)
    d_kernel = d_kernel.T if is_wide else d_kernel
    d_bias = gradient.sum(rows, dtype=gradient_dtype)
    return (
        constraints.activation(gradient @ kernel.T),
        d_kernel.astype(jnp.float32),
        d_bias.astype(jnp.float32),
    )


affine.defvjp(_affine_forward, _affine_backward)


@partial(jax.custom_vjp, nondiff_argnums=(2,))
def project(x, table, gradient_dtype):
    """float32 x[..., D] @ table[V, D].T with factors in the dtype of x; the gradient of the table as in `affine`."""
    return _project_forward(x, table, gradient_dtype)[0]


def _project_forward(x, table, gradient_dtype):
    x, table = constraints.activation(x), table.astype(x.dtype)
    logits = jnp.einsum(
        "...d,vd->...v", x, constraints.table(table), preferred_element_type=jnp.float32
    )
    return constraints.logits(logits), (x, table)


def _project_backward(gradient_dtype, saved, gradient):
    x, table = saved
    gradient = constraints.logits(gradient.astype(x.dtype))
    d_table = constraints.sum_to_table(partial(sum_over_rows, dtype=gradient_dtype), gradient, x)
    return constraints.activation(gradient @ constraints.table(table)), d_table.astype(jnp.float32)


project.defvjp(_project_forward, _project_backward)


class Dense(nn.Module):
    """x[..., I] -> [..., O], all of it by `scale`."""

    features: int
    initializer: float
    gradient_dtype: jnp.dtype = jnp.float32
    scale: float = 1.0

    @nn.compact
    def __call__(self, x):
        init = truncated_normal(self.initializer)
        kernel = self.param("kernel", init, (x.shape[-1], self.features), jnp.float32)
        bias = self.param("bias", nn.initializers.zeros, (self.features,), jnp.float32)
        if self.scale != 1:
            kernel, bias = self.scale * kernel, self.scale * bias
        return affine(x, kernel, bias, self.gradient_dtype)


def truncated_normal(deviation: float):
    """TensorFlow's: a normal of this deviation cut at two of them (so what is left has 0.88 of it)."""

    def init(key, shape, dtype=jnp.float32):
        return deviation * jax.random.truncated_normal(key, -2, 2, shape, dtype)

    return init


@partial(jax.custom_vjp, nondiff_argnums=(3, 4))
def normalize(x, scale, bias, epsilon: float, dtype):
    """x[..., D] less its mean, over its deviation, by scale[D] and bias[D]: of this dtype, computed in float32.

    The backward pass is written out: both of its sums over D are known before either is used, so that a matrix product
    in front of it can make them as it writes. Differentiating the forward pass would make the second from the first.
    """
    return _normalize_forward(x, scale, bias, epsilon, dtype)[0]


def _normalize_forward(x, scale, bias, epsilon, dtype):
    mean, inverse = _statistics(x, epsilon)
    y = (x.astype(jnp.float32) - mean) * inverse * scale + bias
    return y.astype(dtype), (x, mean, inverse, scale)


def _statistics(x, epsilon):
    """float32[..., 1] twice: means, and one over deviations.

    In two passes: the fast variance errs by 5e-4 where the mean is 30 deviations. In 16 bits that is less than the
    rounding of x itself, and the product in front of it can make both sums as it writes.
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
    x, mean, inverse, scale = saved
    rows = tuple(range(x.ndim - 1))
    normal = (x.astype(jnp.float32) - mean) * inverse
    gradient = gradient.astype(jnp.float32)
    d_scale, d_bias = (gradient * normal).sum(rows), gradient.sum(rows)
    gradient = gradient * scale
    along = (gradient * normal).mean(-1, keepdims=True)
    d_x = inverse * (gradient - gradient.mean(-1, keepdims=True) - normal * along)
    return d_x.astype(x.dtype), d_scale, d_bias


normalize.defvjp(_normalize_forward, _normalize_backward)


class LayerNorm(nn.Module):
    """Layer normalization (arXiv:1607.06450): x[..., D] -> dtype[..., D]."""

    epsilon: float
    dtype: jnp.dtype

    @nn.compact
    def __call__(self, x):
        scale = self.param("scale", nn.initializers.ones, x.shape[-1:], jnp.float32)
        bias = self.param("bias", nn.initializers.zeros, x.shape[-1:], jnp.float32)
        return normalize(x, scale, bias, self.epsilon, self.dtype)


class Attention(nn.Module):
    """Multi-head attention of x[B, L, D] to itself; attend(q, k, v, bias, keys) as attention.py makes it."""

    heads: int
    initializer: float
    gradient_dtype: jnp.dtype

    @nn.compact
    def __call__(self, x, attend, bias, keys):
        width = x.shape[-1]
        dense = partial(Dense, width, self.initializer, self.gradient_dtype)

        def heads(name, scale=1.0):
            y = dense(name=name, scale=scale)(x)
            return y.reshape(*y.shape[:-1], self.heads, width // self.heads)

        # The weights are scaled rather than the queries: they are fewer, and for heads of 64 it rounds nothing.
        q_BLHK = heads("query", scale=(width // self.heads) ** -0.5)
        k_BMHK, v_BMHK = heads("key"), heads("value")
        mixed_BLHK = attend(q_BLHK, k_BMHK, v_BMHK, bias, keys)
        return dense(name="out")(mixed_BLHK.reshape(x.shape))


class FeedForward(nn.Module):
    """x[B, L, D] -> [B, L, D] through a hidden layer of width F."""

    hidden: int
    activation: str
    initializer: float
    gradient_dtype: jnp.dtype

    @nn.compact
    def __call__(self, x):
        hidden = Dense(self.hidden, self.initializer, self.gradient_dtype, name="up")(x)
        hidden = ACTIVATIONS[self.activation](hidden)
        return Dense(x.shape[-1], self.initializer, self.gradient_dtype, name="down")(hidden)


class Block(nn.Module):
    """Post-norm Transformer block (arXiv:1706.03762): attention and feed-forward, each added and normalised."""

    heads: int
    hidden: int
    activation: str
    dropout: float
    initializer: float
    epsilon: float
    gradient_dtype: jnp.dtype

    @nn.compact
    def __call__(self, x, attend, bias, keys):
        common = dict(initializer=self.initializer, gradient_dtype=self.gradient_dtype)
        attention = Attention(self.heads, name="attention", **common)
        feed_forward = FeedForward(self.hidden, self.activation, name="feed_forward", **common)
        y = maybe_dropout(attention(x, attend, bias, keys), keys, 1, self.dropout)
        x = constraints.stream(LayerNorm(self.epsilon, x.dtype, name="attention_norm")(x + y))
        y = maybe_dropout(feed_forward(x), keys, 2, self.dropout)
        return constraints.stream(LayerNorm(self.epsilon, x.dtype, name="feed_forward_norm")(x + y))


def padded_size(vocabulary: int) -> int:
    """Rows of the vocabulary inside the model: the next multiple of 128, for the matrix units and for sharding."""
    return -(-vocabulary // 128) * 128


def padded_rows_zero(init, rows: int):
    """An initializer of a table whose rows from `rows` on are padding, and zero."""

    def padded(key, shape, dtype=jnp.float32):
        real = jnp.arange(shape[0])[:, None] < rows
        return jnp.where(real, init(key, shape, dtype), 0)

    return padded


class Embedder(nn.Module):
    """Sum of word, position and segment embeddings: int32[B, L] each -> float32[B, L, D]."""

    vocabulary: int
    max_length: int
    type_vocabulary: int
    width: int
    initializer: float
    gradient_dtype: jnp.dtype

    def setup(self):
        init = truncated_normal(self.initializer)
        words = padded_size(self.vocabulary), self.width
        self.words = self.param("words", padded_rows_zero(init, self.vocabulary), words)
        self.position_table = self.param("positions", init, (self.max_length, self.width))
        self.segment_table = self.param("segments", init, (self.type_vocabulary, self.width))

    def __call__(self, tokens, positions, segments):
        vectors = constraints.lookup(self.words, tokens, self.gradient_dtype)
        for table, ids in ((self.position_table, positions), (self.segment_table, segments)):
            vectors += table.at[ids].get(mode="promise_in_bounds")
        return constraints.stream(vectors)

    def attend(self, x, bias):
        """float32 logits[..., V padded] of x[..., D] by the tied word embeddings; padding has the least possible."""
        logits = project(x, self.words, self.gradient_dtype)
        real = jnp.arange(self.words.shape[0]) < self.vocabulary
        return jnp.where(real, logits + bias, MASKED)
