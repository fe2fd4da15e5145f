"""Attention of a recurrent decoder to the states of the source: scores and reach, as pure functions.

A state h_t of the decoder gives each state h_s of the source a share a_t(s), by their score. With c_t, the sum of the
source's states by these shares, tanh(W [c_t; h_t]) is what logits are computed from (Luong et al., arXiv:1508.04025).

B batch, N queries of a row, L length of the source, D width, K size of the keys, M `max_length`.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn

from bert_jax.layers.dense import MASKED, Dense, affine

NONE = "none"  # the score of a decoder that does not attend
STRENGTH = 10.0  # what cosines, which are at most 1, are multiplied by at first


class Places(NamedTuple):
    """Where tokens are."""

    ids: jax.Array  # int32[B, L], of the sequence of a row; 0 is padding
    positions: jax.Array  # int32[B, L], in the sequence


class Memory(NamedTuple):
    """What attention reads of the source."""

    states: jax.Array  # [B, L, D]
    keys: jax.Array  # [B, L, K], see `Attention.memorize`
    places: Places


class Options(NamedTuple):
    """How a decoder attends."""

    score: str  # of SCORES
    reach: str  # of REACHES
    window: int  # D of Luong et al.: how many tokens to each side of p_t a local reach sees
    gradient_dtype: jnp.dtype


# --- Scores ---------------------------------------------------------------------------------------
# Each is a function of h[B, N, D], the memory, and product(name of a weight, x) -> x times it. It returns
# float32[B, N, L]: scores that are rounded to bfloat16 are off by up to 0.2.


def dot_score(h, memory: Memory, product):
    """h_t . key_s, which is h_s, or with the score `general` W h_s."""
    return jnp.einsum("bnk,blk->bnl", h, memory.keys, preferred_element_type=jnp.float32)


def cosine_score(h, memory: Memory, product):
    """The cosine of h_t and h_s times a learned strength, which is in the keys (arXiv:1410.5401, equation 5)."""
    return dot_score(normalize(h), memory, product)


def additive_score(h, memory: Memory, product):
    """v . tanh(W_1 h_t + W_2 h_s) (Bahdanau et al., arXiv:1409.0473); the `concat` of Luong et al."""

    @jax.checkpoint  # in a scan, arrays [B, N, L, K] of all steps would be kept for the backward pass
    def compare(queries, keys):
        hidden = jnp.tanh(queries[:, :, None] + keys[:, None])
        return product("vector", hidden.astype(jnp.float32))[..., 0]

    return compare(product("query", h), memory.keys)


def location_score(h, memory: Memory, product):
    """Component s of W h_t: what the source says does not matter."""
    values = product("query", h.astype(jnp.float32))
    shape = *h.shape[:2], memory.states.shape[1]
    positions = jnp.broadcast_to(memory.places.positions[:, None], shape)
    return jnp.take_along_axis(values, positions, axis=-1)


SCORES = {
    "dot": dot_score,
    "general": dot_score,
    "additive": additive_score,
    "location": location_score,
    "cosine": cosine_score,
}


def normalize(x):
    """Returns x[..., D] with the length 1."""
    return x * jax.lax.rsqrt(jnp.square(x).sum(axis=-1, keepdims=True) + 1e-6)


# --- Reach ----------------------------------------------------------------------------------------

GLOBAL, MONOTONIC, PREDICTIVE = "global", "local_m", "local_p"
# global: all of the source. local_m, local_p: a window around a center p_t. It is t, or at most the last token of the
# source; or with p it is predicted (equation 9), and shares are multiplied by a gaussian around it (equation 10).
REACHES = (GLOBAL, MONOTONIC, PREDICTIVE)


def weigh(options: Options, weights: dict, h, places: Places, memory: Memory):
    """Returns the shares a_t(s), float32[B, N, L]. Those of local_p add up to less than 1.

    weights: those of `Attention`.
    h: [B, N, D], states of the decoder. places: of its tokens, [B, N].
    """

    def product(name, x):
        return affine(x, weights[name], None, options.gradient_dtype)

    scores = SCORES[options.score](h, memory, product)
    is_seen = places.ids[..., None] == memory.places.ids[:, None]
    if options.reach == GLOBAL:
        return nn.softmax(jnp.where(is_seen, scores, MASKED))
    lengths = is_seen.sum(axis=-1)
    if options.reach == MONOTONIC:
        centers = jnp.minimum(places.positions, lengths - 1)
    else:
        hidden = jnp.tanh(product("hidden", h)).astype(jnp.float32)
        centers = lengths * nn.sigmoid(product("center", hidden)[..., 0])
    distances = memory.places.positions[:, None] - centers[..., None]
    is_seen &= jnp.abs(distances) <= options.window
    shares = nn.softmax(jnp.where(is_seen, scores, MASKED))
    if options.reach == MONOTONIC:
        return shares
    deviation = options.window / 2
    return shares * jnp.exp(-jnp.square(distances) / (2 * deviation**2))


def attend(options: Options, weights: dict, h, places: Places, memory: Memory):
    """Returns tanh(W [c_t; h_t]), [B, N, D], of states h[B, N, D]; see `weigh`."""
    shares = weigh(options, weights, h, places, memory).astype(h.dtype)
    context = jnp.einsum("bnl,bld->bnd", shares, memory.states)
    joined = jnp.concatenate([context, h], axis=-1)
    return jnp.tanh(affine(joined, weights["combine"], None, options.gradient_dtype))


class Attention(nn.Module):
    """The weights of attention."""

    options: Options
    width: int  # D
    max_length: int  # M
    initializer: float

    def setup(self):
        dense = partial(
            Dense,
            initializer=self.initializer,
            gradient_dtype=self.options.gradient_dtype,
            bias=False,
        )
        is_location = self.options.score == "location"
        self.key = dense(self.width)
        self.query = dense(self.max_length if is_location else self.width)
        self.vector = dense(1)
        self.hidden = dense(self.width)
        self.center = dense(1)
        self.combine = dense(self.width)
        if self.options.score == "cosine":
            self.strength = self.param("scale", nn.initializers.constant(STRENGTH), ())

    def memorize(self, states, places: Places) -> Memory:
        """Returns what attention reads of the source's states [B, L, D]."""
        keys = states
        if self.options.score in ("general", "additive"):
            keys = self.key(states)
        if self.options.score == "cosine":
            keys = self.strength.astype(states.dtype) * normalize(states)
        return Memory(states, keys, places)

    def weights(self) -> dict:
        """Returns {name: weights float32[I, O]} that `attend` multiplies by."""
        layers = {"combine": (self.combine, 2 * self.width)}
        if self.options.score in ("additive", "location"):
            layers["query"] = self.query, self.width
        if self.options.score == "additive":
            layers["vector"] = self.vector, self.width
        if self.options.reach == PREDICTIVE:
            layers["hidden"] = self.hidden, self.width
            layers["center"] = self.center, self.width
        return {name: layer.weights(size)[0] for name, (layer, size) in layers.items()}

    def probabilities(self, h, places: Places, memory: Memory):
        """Returns the shares of one head, float32[B, 1, N, L], which add up to 1; `capture` reads them."""
        shares = weigh(self.options, self.weights(), h, places, memory)
        return (shares / shares.sum(axis=-1, keepdims=True))[:, None]
