"""The decoder: cells that read the target, word by word, and attention to the source.

With `input_feeding`, attention is a part of each step, and what it returns is an input of the next step's first cell,
besides the word (arXiv:1508.04025, section 3.3). Without it, all states attend at once, after the scan, which with
score=additive needs arrays [B, T, L, K].

B batch, T length of the target, D width, G gates of a cell, N hypotheses of a row.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn
from recurrent import attention, cells
from recurrent.attention import Attention, Memory, Places
from recurrent.encoder import Sizes

from bert_jax import prng
from bert_jax.layers.dense import Dense, affine
from bert_jax.layers.dropout import maybe_dropout
from bert_jax.models.transformer import DECODER
from bert_jax.parallel import constraints

LOGITS = DECODER + 1  # number of the dropout in front of the logits
STEPS = DECODER + 2  # number of the first step's keys of the dropout between layers


class Carry(NamedTuple):
    """What a step gives the next one."""

    states: list  # of each layer, tuples of [B, D]
    vector: (
        jax.Array
    )  # [B, D]: with input_feeding what attention returned, else the last layer's state


def advance(sizes: Sizes, weights: dict, carry: Carry, x, places, memory, keys) -> Carry:
    """Returns the carry with one more token of each of N hypotheses of a row; in it, B stands for B N.

    weights: those of Decoder.
    x: [B N, G D], embeddings times the weights of the first cell.
    places: of the tokens, [B, N]. memory: of the source, or None.
    keys: uint32[B N], of dropout, or None.
    """
    if sizes.input_feeding:
        x += affine(carry.vector, weights["feed"], None, sizes.gradient_dtype)
    states = []
    for number, (state, cell) in enumerate(zip(carry.states, weights["cells"], strict=True)):
        if number:
            x = maybe_dropout(states[-1][0].astype(x.dtype), keys, number, sizes.dropout)
            x = affine(x, *cell["input"], sizes.gradient_dtype)
        state = cells.advance(sizes.cell, x, state, cell["kernels"], sizes.gradient_dtype)
        states.append(state)
    vector = states[-1][0].astype(sizes.dtype)
    if sizes.input_feeding:
        vector = attend(sizes, weights, vector, places, memory)
    return Carry(states, vector)


def attend(sizes: Sizes, weights: dict, h, places: Places, memory: Memory):
    """Returns what `attention.attend` does, in the shape of h: [B N, D] or [B, N, D]."""
    queries = h.reshape(*places.ids.shape, -1)
    vectors = attention.attend(sizes.attention, weights["context"], queries, places, memory)
    return vectors.reshape(h.shape)


def scan(sizes: Sizes, x, is_first, starts, places, memory, keys, *, weights) -> tuple:
    """Returns the states of the last layer, and `vector` of Carry, [B, T, D] each.

    x: [B, T, G D]. places: [B, T]. keys: uint32[B], or None. The others: see `advance`.
    is_first: bool[B, T], where a target begins.
    starts: the states with which it does, of each layer a tuple of [B, T, D].
    """

    def step(carry, inputs):
        number, x, is_first, starts, places = inputs
        starts = Carry(starts, jnp.zeros_like(carry.vector))
        carry = cells.reset(is_first, carry, starts)
        places = Places(*(array[:, None] for array in places))
        step_keys = None if keys is None else prng.fold(keys, number)
        carry = advance(sizes, weights, carry, x, places, memory, step_keys)
        return carry, (carry.states[-1][0].astype(sizes.dtype), carry.vector)

    numbers = jnp.uint32(STEPS) + jnp.arange(x.shape[1], dtype=jnp.uint32)
    inputs = numbers, *cells.by_time((x, is_first, starts, places))
    return cells.by_time(jax.lax.scan(step, first_carry(sizes, starts), inputs)[1])


def first_carry(sizes: Sizes, starts) -> Carry:
    """Returns the carry in front of the first token. starts: see `scan`."""
    states = jax.tree.map(lambda array: array[:, 0], starts)
    return Carry(states, jnp.zeros((len(states[0][0]), sizes.width), sizes.dtype))


class Decoder(nn.Module):
    """The weights of the decoder."""

    sizes: Sizes
    context: Attention | None

    def setup(self):
        sizes = self.sizes
        self.blocks = [sizes.make_cell(sizes.width) for _ in range(sizes.layers)]
        gates = cells.KINDS[sizes.cell].gates * sizes.width
        self.feed = Dense(gates, sizes.initializer, sizes.gradient_dtype, bias=False)

    def weights(self) -> dict:
        """Returns the arrays that steps multiply by."""
        width = self.sizes.width
        weights = {"cells": [{"kernels": cell.kernels()} for cell in self.blocks]}
        for cell, arrays in zip(self.blocks[1:], weights["cells"][1:], strict=True):
            arrays["input"] = cell.input_weights(width)
        if self.sizes.input_feeding:
            weights["feed"] = self.feed.weights(width)[0]
        if self.context:
            weights["context"] = self.context.weights()
        return weights

    def memorize(self, states, places: Places) -> Memory | None:
        """Returns what attention reads of the source's states [B, L, D]; None without attention."""
        return self.context.memorize(states, places) if self.context else None

    def __call__(self, x, starts, places: Places, memory, keys):
        """Returns [B, T, D], what logits are computed from, of embeddings x[B, T, D]. The others: see `scan`."""
        sizes = self.sizes
        before = jnp.pad(places.ids, ((0, 0), (1, 0)), constant_values=-1)[:, :-1]
        arrays = starts, places, memory, keys
        weights = self.weights()
        run = constraints.map_rows(partial(scan, sizes))
        projected = self.blocks[0].project(x)
        states, vectors = run(projected, places.ids != before, *arrays, weights=weights)
        if self.context and self.is_mutable_collection("intermediates"):
            self.context.probabilities(states, places, memory)
        if self.context and not sizes.input_feeding:
            vectors = attend(sizes, weights, states, places, memory)
        return constraints.stream(vectors)

    def step(self, x, carry: Carry, places: Places, memory) -> tuple:
        """Returns what the logits are computed from, [B N, D], and the carry, after one more token of each hypothesis.

        x: [B N, D], embeddings. places: [B, N].
        """
        weights = self.weights()
        projected = self.blocks[0].project(x)
        carry = advance(self.sizes, weights, carry, projected, places, memory, None)
        if self.context and not self.sizes.input_feeding:
            return attend(self.sizes, weights, carry.vector, places, memory), carry
        return carry.vector, carry
