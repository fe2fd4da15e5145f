"""Dropout by keys (uint32[B], one per row): a row has the same mask in any batch and on any device.

B batch.
"""

from functools import partial

import jax
import jax.numpy as jnp

from bert_jax import prng
from bert_jax.layers import gpu


@partial(jax.custom_vjp, nondiff_argnums=(2,))
def dropout(x, keys, rate: float):
    """Returns x[B, ...] with elements zeroed with probability `rate`, and the others scaled by 1 / (1 - rate) in
    float32.

    That factor rounded to bfloat16 would be 0.16 % too small for a rate of 0.1, in each layer. The mask is a function
    of keys uint32[B] and the position in the row. It is never stored: the backward pass recomputes it from the keys,
    which costs less than reading it from memory.
    """
    counter = jnp.zeros((), jnp.uint32)
    for axis in range(1, x.ndim):
        counter = counter * jnp.uint32(x.shape[axis])
        counter = counter + jax.lax.broadcasted_iota(jnp.uint32, (1, *x.shape[1:]), axis)
    row_keys = keys.reshape(-1, *(1,) * (x.ndim - 1))
    bits = prng.fold(row_keys, counter)
    survives = bits >= jnp.uint32(round(rate * 2**32))
    dtype = x.dtype
    x = x.astype(jnp.float32)
    return jnp.where(survives, x * (1 / (1 - rate)), 0).astype(dtype)


def _dropout_forward(x, keys, rate):
    return dropout(x, keys, rate), keys


def _dropout_backward(rate, keys, gradient):
    # Without this barrier, XLA saves the mask of the forward pass on GPUs.
    keys = gpu.barrier(keys)
    if gradient.dtype.itemsize == 2:
        # Without this one, it stores the gradient in float32, and reads it to sum that of a bias and to round it.
        gradient = gpu.barrier(gradient)
    return dropout(gradient, keys, rate), None


dropout.defvjp(_dropout_forward, _dropout_backward)


def maybe_dropout(x, keys, number: int, rate: float):
    """Applies dropout unless keys is None or the rate is 0. number: distinguishes the dropouts of one layer."""
    if keys is None or rate == 0:
        return x
    return dropout(x, prng.fold(keys, jnp.uint32(number)), rate)
