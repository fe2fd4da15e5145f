"""The arguments of attention: a static Spec, a Mask of arrays, and for decoding a Cache of keys and values.

B batch, L length of the queries, M length of the keys, H heads, K head size.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

# Names of what kernels may lack, in Mask.properties and in Spec.needs.
OTHER_KEYS = "ids of other keys"
PAIRS = "a mask of pairs"
POSITIONS = "positions"
KEY_ANGLES = "angles of the keys"
OWN_WEIGHTS = "weights of its own"


class Spec(NamedTuple):
    """The static settings of the attention of a layer."""

    implementation: str  # auto, or one of attention.IMPLEMENTATIONS
    head_size: int
    window: int = 0  # local attention, to at most half as many tokens on each side; 0: to all
    causal: bool = False  # whether a token attends to no later one
    dropout: float = 0.0  # rate on the probabilities
    # Whether the backward pass of xla always recomputes the probabilities, as that of kernels does.
    remat: bool = False
    sequences: int = 0  # packed in a row, at most; 0: not known
    # Whether the program is traced to count FLOPs: then only pairs inside of the window have products.
    is_counted: bool = False
    needs: tuple[str, ...] = ()  # what the attention or its masks have, such as PAIRS

    def to_context(self) -> "Spec":
        """Returns that of attention to a second sequence, whose rows a named kernel may not suit."""
        name = "xla" if self.implementation == "xla" else "auto"
        return self._replace(implementation=name, causal=False, window=0, needs=(OTHER_KEYS,))


class Mask(NamedTuple):
    """Which keys a query attends to, and where both are.

    A query attends to keys with its own id, which is not 0. With `key_ids`, the keys are of another sequence.
    """

    query_ids: jax.Array  # int32[B, L], 0 for padding
    key_ids: jax.Array | None = None  # int32[B, M]; None: those of the queries
    angles: tuple = ()  # those of `rotary.angles`, by which queries and keys are rotated, or none
    key_angles: tuple = ()  # those of the keys, if they differ
    positions: tuple = ()  # int32[B, L] of queries and int32[B, M] of keys, if they are not 0, 1, 2, ...
    pairs: Any = None  # bool[B, L, M], further pairs that are left out where it is False

    def properties(self) -> tuple[str, ...]:
        """Returns what the mask has besides the ids of one sequence and angles, in the words of a message."""
        fields = {
            OTHER_KEYS: self.key_ids,
            PAIRS: self.pairs,
            POSITIONS: self.positions or None,
            KEY_ANGLES: self.key_angles or None,
        }
        return tuple(name for name, array in fields.items() if array is not None)


class Cache(NamedTuple):
    """The keys and values of a layer, for the tokens of each row so far: arrays of a fixed size.

    Heads come first: otherwise XLA would copy the whole cache at each step, to compute a product for each head.
    """

    keys: jax.Array  # [B, H, M, K], rotated
    values: jax.Array  # [B, H, M, K]
    position: jax.Array  # int32[B], the number of tokens in it

    def append(self, keys, values) -> "Cache":
        """Returns the cache with the keys and values [B, L, H, K] of the next L tokens of each row.

        M is at least the number of all tokens that are given to it.
        """

        def write(old, new):
            write = partial(jax.lax.dynamic_update_slice_in_dim, axis=1)
            return jax.vmap(write)(old, new.astype(old.dtype).swapaxes(1, 2), self.position)

        return Cache(
            write(self.keys, keys),
            write(self.values, values),
            self.position + keys.shape[1],
        )

    def grow(self, length: int) -> "Cache":
        """Returns the cache with room for `length` more tokens."""
        widths = (0, 0), (0, 0), (0, length), (0, 0)
        return self._replace(keys=jnp.pad(self.keys, widths), values=jnp.pad(self.values, widths))

    def mask(self, length: int) -> Mask:
        """Returns the mask of the next `length` tokens of each row. A prompt with padding at its end needs causal
        attention, for which what is behind a token does not exist."""
        rows, _, size, _ = self.keys.shape
        query_positions = self.position[:, None] + jnp.arange(length)
        key_positions = jnp.broadcast_to(jnp.arange(size), (rows, size))
        is_filled = key_positions < self.position[:, None] + length
        return Mask(
            jnp.ones_like(query_positions),
            is_filled.astype(jnp.int32),
            positions=(query_positions, key_positions),
        )


class Branches(NamedTuple):
    """Which tokens of the Cache of a row each of its N hypotheses has: those of a prompt, which all have, and its own.
    After the prompt come a token of each hypothesis, then another one of each, and so on."""

    visible: jax.Array  # bool[B N, M]
    prompt: jax.Array  # int32[B N], tokens of the prompt

    def grow(self, length: int) -> "Branches":
        """Returns the branches with room for `length` more tokens."""
        return self._replace(visible=jnp.pad(self.visible, ((0, 0), (0, length))))

    def append(self, position) -> tuple[Mask, "Branches"]:
        """Returns the mask of the next token of each hypothesis, N queries a row, and the branches with these tokens.

        position: that of the cache, int32[B].
        """
        rows = len(position)
        position = position[:, None]
        count = len(self.prompt) // rows
        prompt = self.prompt.reshape(rows, count)[:, :1]
        slots = jnp.arange(self.visible.shape[1])
        is_own = slots == (position + jnp.arange(count))[..., None]
        visible = self.visible.reshape(rows, count, -1) | is_own
        behind = jnp.maximum(slots - prompt, 0)
        queries = jnp.broadcast_to(prompt + (position - prompt) // count, (rows, count))
        keys = slots - behind + behind // count
        mask = Mask(
            jnp.ones_like(queries),
            jnp.ones_like(keys),
            positions=(queries, keys),
            pairs=visible,
        )
        return mask, self._replace(visible=visible.reshape(self.visible.shape))


def empty_cache(rows: int, length: int, heads: int, spec: Spec, dtype) -> Cache:
    """Returns a Cache without tokens: B = rows, M = length, H = heads."""
    shape = rows, heads, length, spec.head_size
    return Cache(jnp.zeros(shape, dtype), jnp.zeros(shape, dtype), jnp.zeros(rows, jnp.int32))
