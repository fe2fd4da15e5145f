"""The LSTM with a projection of its output, whose cell and output are clipped (TensorFlow's LSTMCell, as in ELMo).

B batch, L length, I width of the input, C size of the cell, P width of the output.
"""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
from flax import linen as nn

from bert_jax.layers.dense import affine
from bert_jax.parallel import constraints

FORGET_BIAS = 1.0


class LSTM(nn.Module):
    """One layer, in one direction. Padding changes no state.

    clip: largest absolute value of the cell and of the output.
    unroll: steps that a gradient goes back through, at most; it stops between one range of so many and the next.
    """

    cell: int
    width: int
    clip: float
    unroll: int
    gradient_dtype: jnp.dtype = jnp.float32

    @nn.compact
    def __call__(self, x, is_real, state=None):
        """Returns the outputs [B, L, P], in the dtype of x, and the last state.

        x: [B, L, I].
        is_real: bool[B, L].
        state: (cell float32[B, C], output float32[B, P]) before the first step; None: zeros.
        """
        init = nn.initializers.glorot_uniform()
        size = x.shape[-1]
        gates = 4 * self.cell
        # One matrix in the published code, [I + P, 4 C], whose initial values depend on both of its sizes.
        kernel = self.param("kernel", init, (size + self.width, gates), jnp.float32)
        bias = self.param("bias", nn.initializers.zeros, (gates,), jnp.float32)
        projection = self.param("projection", init, (self.cell, self.width), jnp.float32)
        if state is None:
            state = tuple(jnp.zeros((len(x), size)) for size in (self.cell, self.width))
        # The products of the inputs of all steps are one.
        inputs = affine(x, kernel[:size], bias, self.gradient_dtype)
        options = {"clip": self.clip, "gradient_dtype": self.gradient_dtype}
        run = partial(scan, unroll=self.unroll, step=partial(cell, **options))
        weights = {"recurrent": kernel[size:], "projection": projection}
        return constraints.map_rows(run)(inputs, is_real, state, weights=weights)


def scan(inputs, is_real, state: tuple, weights: dict, step: Callable, unroll: int) -> tuple:
    """Returns the outputs [B, L, P] and the last state.

    inputs: those of the gates, [B, L, 4 C].
    step: (input, state, weights) -> the next state.
    """
    length = inputs.shape[1]
    is_first = jnp.arange(length) % unroll == 0

    def step_or_stay(state, now):
        x, is_real, is_first = now
        before = jax.tree.map(partial(stop_gradient_if, is_first), state)
        after = step(x, before, weights)
        state = tuple(
            jnp.where(is_real[:, None], new, old) for new, old in zip(after, before, strict=True)
        )
        return state, state[1].astype(x.dtype)

    by_time = inputs.swapaxes(0, 1), is_real.T, is_first
    state, outputs = jax.lax.scan(step_or_stay, state, by_time)
    return outputs.swapaxes(0, 1), state


def stop_gradient_if(condition, x):
    return jnp.where(condition, jax.lax.stop_gradient(x), x)


def cell(x, state: tuple, weights: dict, clip: float, gradient_dtype) -> tuple:
    """Returns the next state; the gates are input i, candidate j, forget f, output o. x: [B, 4 C]."""
    memory, output = state
    recurrent = affine(output.astype(x.dtype), weights["recurrent"], None, gradient_dtype)
    i, j, f, o = jnp.split((x + recurrent).astype(jnp.float32), 4, axis=-1)
    memory = nn.sigmoid(f + FORGET_BIAS) * memory + nn.sigmoid(i) * jnp.tanh(j)
    memory = jnp.clip(memory, -clip, clip)
    output = nn.sigmoid(o) * jnp.tanh(memory)
    output = affine(output.astype(x.dtype), weights["projection"], None, gradient_dtype)
    return memory, jnp.clip(output.astype(jnp.float32), -clip, clip)
