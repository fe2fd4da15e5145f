"""Recurrent cells, and their scan over time.

A GRU applies its reset gate before the product, as in arXiv:1406.1078 and in Keras' GRU(reset_after=False); PyTorch and
Flax apply it after the product. The update gate weighs the new state: h = (1 - u) h_old + u h_new.

B batch, L length, I size of the input, D size of the state, G gates.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from bert_jax.layers.dense import Dense, affine

FORGET = 1.0  # added to the forget gate of an LSTM, so that it remembers at first


def gru(x, state: tuple, kernels: tuple, product: Callable) -> tuple:
    """Returns the next state (h[B, D],).

        r = sigmoid(x_r + h U_r)
        u = sigmoid(x_u + h U_u)
        new = tanh(x_n + (r * h) U_n)

    x: [B, 3 D], the input times its weights, for r, u and new.
    kernels: float32[D, 2 D] of r and u, and float32[D, D] of new.
    product: (states [B, D], a kernel) -> their product.
    """
    (h,) = state
    gates, candidate = jnp.split(x, [2 * h.shape[-1]], axis=-1)
    reset, update = jnp.split(nn.sigmoid(gates + product(h, kernels[0])), 2, axis=-1)
    new = jnp.tanh(candidate + product(reset * h, kernels[1]))
    return ((1 - update) * h + update * new,)


def lstm(x, state: tuple, kernels: tuple, product: Callable) -> tuple:
    """Returns the next state (h[B, D], c[B, D]) (arXiv:1409.2329, section 3).

        i, f, g, o = x + h U
        c = sigmoid(f + FORGET) * c + sigmoid(i) * tanh(g)
        h = sigmoid(o) * tanh(c)

    x: [B, 4 D], the input times its weights, for i, f, g and o.
    kernels: one, float32[D, 4 D].
    product: as in `gru`.
    """
    h, c = state
    i, f, g, o = jnp.split(x + product(h, kernels[0]), 4, axis=-1)
    c = nn.sigmoid(f + FORGET) * c + nn.sigmoid(i) * jnp.tanh(g)
    return nn.sigmoid(o) * jnp.tanh(c), c


class Kind(NamedTuple):
    """A kind of cells."""

    step: Callable  # (x, state, kernels, product) -> the next state
    kernels: tuple  # the gates of each
    arrays: int  # of a state, [B, D] each; the first one is what others read

    @property
    def gates(self) -> int:
        return sum(self.kernels)


KINDS = {"gru": Kind(gru, (2, 1), 1), "lstm": Kind(lstm, (4,), 2)}


def advance(kind: str, x, state: tuple, kernels: tuple, gradient_dtype) -> tuple:
    """Returns the state after one more input. States are in float32 at least.

    x: [B, G D], the input times its weights, in the dtype of products.
    kernels: the weights of the state, see `Cell.kernels`.
    """

    def product(states, kernel):
        y = affine(states.astype(x.dtype), kernel, None, gradient_dtype)
        return y.astype(states.dtype)

    return KINDS[kind].step(x.astype(state[0].dtype), state, kernels, product)


def zero_state(kind: str, x) -> tuple:
    """Returns the state in front of the first input. x: [B, ..., G D], inputs times their weights."""
    size = x.shape[-1] // KINDS[kind].gates
    dtype = jnp.promote_types(x.dtype, jnp.float32)
    return (jnp.zeros((len(x), size), dtype),) * KINDS[kind].arrays


def reset(is_first, states, starts):
    """Returns the states, in rows where a sequence begins its first ones. is_first: bool[B]. states, starts: trees of
    arrays [B, D]."""
    return jax.tree.map(partial(jnp.where, is_first[:, None]), starts, states)


def by_time(tree):
    """Exchanges the first two axes of the arrays of a tree: [B, L, ...] and [L, B, ...]."""
    return jax.tree.map(lambda array: array.swapaxes(0, 1), tree)


def scan(kind: str, is_reverse: bool, gradient_dtype, x, is_first, *, kernels) -> tuple:
    """Returns the states after each input, arrays [B, L, D].

    is_reverse: whether time goes backward.
    x: [B, L, G D], inputs times their weights.
    is_first: bool[B, L], where a sequence begins, as time goes: its state is 0 before.
    kernels: as in `advance`.
    """

    def step(state, inputs):
        x, is_first = inputs
        state = advance(kind, x, reset(is_first, state, start), kernels, gradient_dtype)
        return state, state

    start = zero_state(kind, x)
    return by_time(jax.lax.scan(step, start, by_time((x, is_first)), reverse=is_reverse)[1])


class Cell(nn.Module):
    """The weights of a cell, whose steps are `advance`."""

    kind: str
    size: int  # D
    initializer: float
    gradient_dtype: jnp.dtype

    def setup(self):
        width = KINDS[self.kind].gates * self.size
        dense = partial(Dense, width, self.initializer, self.gradient_dtype)
        self.input = dense()
        self.recurrent = dense(bias=False)

    def project(self, x):
        """Returns inputs [..., I] times their weights, [..., G D]."""
        return self.input(x)

    def input_weights(self, size: int) -> tuple:
        """Returns the weights of inputs, float32[I, G D], and their bias float32[G D]. size: I."""
        return self.input.weights(size)

    def kernels(self) -> tuple:
        """Returns the weights of the state, float32[D, G D], in the parts of the products of a step. In a scan, a part
        that is cut out in each step would cost a gradient of the whole in each step."""
        (kernel, _) = self.recurrent.weights(self.size)
        ends = np.cumsum(KINDS[self.kind].kernels)[:-1] * self.size
        return tuple(jnp.split(kernel, ends, axis=1))
