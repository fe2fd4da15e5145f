"""Dense layers, and the product of vectors and the word embeddings that gives logits.

D width, I inputs, O outputs, V vocabulary.

Activations have the compute data type (`config.dtype`); parameters are float32. Gradients of dense layers and word
embeddings are computed in `gradient_dtype`.
"""

from functools import partial

import jax
import jax.numpy as jnp
from flax import linen as nn

from bert_jax.parallel import constraints

# The logit of what is masked: so low that its probability is exactly zero in float32.
MASKED = -1e9


@partial(jax.custom_vjp, nondiff_argnums=(3,))
def affine(x, kernel, bias, gradient_dtype):
    """Returns x[..., I] @ kernel[I, O] + bias[O] in the dtype of x. bias: or None.

    The gradients of kernel and bias are summed over rows and devices in `gradient_dtype`. Differentiating through the
    cast of the kernel would round them to bfloat16 before they are summed over devices.
    """
    return _affine_forward(x, kernel, bias, gradient_dtype)[0]


def _affine_forward(x, kernel, bias, gradient_dtype):
    x = constraints.activation(x)
    kernel = kernel.astype(x.dtype)
    y = x @ kernel
    if bias is not None:
        y += bias.astype(x.dtype)
    return constraints.activation(y), (x, kernel, bias)


def sum_over_rows(a, b, dtype):
    """Returns dtype[I, O]: the product of a[..., I] and b[..., O] summed over all leading axes, in that dtype."""
    rows = tuple(range(a.ndim - 1))

    def product(a, b):
        return jax.lax.dot_general(a, b, ((rows, rows), ((), ())), preferred_element_type=dtype)

    def on_cpu(a, b):
        # XLA's CPU backend lacks some bfloat16 products with float32 sums. It transposes the left factor, a pass with
        # long strides: so the narrower factor goes there. The barrier keeps XLA from exchanging them again.
        a = a.astype(dtype)
        b = b.astype(dtype)
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
    d_bias = None
    if bias is not None:
        d_bias = gradient.sum(rows, dtype=gradient_dtype).astype(jnp.float32)
    return d_x, d_kernel.astype(jnp.float32), d_bias


affine.defvjp(_affine_forward, _affine_backward)


@partial(jax.custom_vjp, nondiff_argnums=(3,))
def joint_affine(x, kernels, biases, gradient_dtype):
    """Returns a list: `affine` of x with each kernel and bias.

    kernels: of equal width. The backward pass computes one product of all gradients instead of one for each kernel, of
    which each reads x, and reads and writes its gradient.
    """
    return _joint_forward(x, kernels, biases, gradient_dtype)[0]


def _joint_forward(x, kernels, biases, gradient_dtype):
    layers = zip(kernels, biases, strict=True)
    results = [_affine_forward(x, *layer, gradient_dtype) for layer in layers]
    return [y for y, _ in results], (x, kernels, biases)


def _joint_backward(gradient_dtype, saved, gradients):
    x, kernels, biases = saved
    kernel = jnp.concatenate([kernel.astype(x.dtype) for kernel in kernels], axis=1)
    gradient = jnp.concatenate(gradients, axis=-1)
    saved = constraints.activation(x), kernel, biases[0]
    d_x, d_kernel, d_bias = _affine_backward(gradient_dtype, saved, gradient)
    d_biases = biases if d_bias is None else jnp.split(d_bias, len(kernels))
    return d_x, jnp.split(d_kernel, len(kernels), axis=1), d_biases


joint_affine.defvjp(_joint_forward, _joint_backward)


def sum_of_logits(gradient):
    """Returns float32[V]: gradient[..., V] summed over all leading axes."""

    def product(gradient):  # XLA's CPU backend takes 25 times as long for a sum of rows of 50,000
        ones = jnp.ones(gradient.shape[:-1], gradient.dtype)
        return jnp.tensordot(ones, gradient, ones.ndim)

    def plain_sum(gradient):
        return gradient.sum(tuple(range(gradient.ndim - 1)))

    return jax.lax.platform_dependent(gradient, cpu=product, default=plain_sum)


@partial(jax.custom_vjp, nondiff_argnums=(3,))
def project(x, table, bias, gradient_dtype):
    """Returns float32 x[..., D] @ table[V, D].T + bias[V], with factors in the dtype of x. bias: or None.

    The gradient of the table is summed in `gradient_dtype`, as in `affine`, and that of the bias in float32.
    """
    return _project_forward(x, table, bias, gradient_dtype)[0]


def _project_forward(x, table, bias, gradient_dtype):
    x = constraints.activation(x)
    table = table.astype(x.dtype)
    logits = jnp.einsum(
        "...d,vd->...v",
        x,
        constraints.table(table),
        preferred_element_type=jnp.float32,
    )
    logits = constraints.logits(logits)
    if bias is not None:
        logits += bias
    return logits, (x, table, bias)


def _project_backward(gradient_dtype, saved, gradient):
    x, table, bias = saved
    d_bias = None if bias is None else sum_of_logits(gradient)
    gradient = constraints.logits(gradient.astype(x.dtype))
    gradient = jax.lax.optimization_barrier(gradient)
    sum_gradients = partial(sum_over_rows, dtype=gradient_dtype)
    d_table = constraints.sum_to_table(sum_gradients, gradient, x)
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

    def __call__(self, x):
        return affine(x, *self.weights(x.shape[-1]), self.gradient_dtype)

    @nn.compact
    def weights(self, size: int):
        """Returns the kernel, float32[I, O], and the bias, float32[O] or None, multiplied by `scale`. size: I."""
        init = truncated_normal(self.initializer)
        kernel = self.param("kernel", init, (size, self.features), jnp.float32)
        bias = maybe_bias(self, self.features)
        if self.scale != 1:
            kernel = self.scale * kernel
            if bias is not None:
                bias = self.scale * bias
        return kernel, bias


def maybe_bias(module, size: int):
    """Returns the parameter `bias`, float32[size], of a module; None if its field `bias` is False."""
    if not module.bias:
        return None
    return module.param("bias", nn.initializers.zeros, (size,), jnp.float32)


def truncated_normal(deviation: float):
    """Returns TensorFlow's truncated normal initializer: a normal of this standard deviation, cut at two deviations.

    The values have 0.88 of that deviation; unlike Flax's, this initializer does not correct for it.
    """

    def init(key, shape, dtype=jnp.float32):
        return deviation * jax.random.truncated_normal(key, -2, 2, shape, dtype)

    return init
