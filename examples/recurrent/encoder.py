"""The bidirectional encoder: in each layer two cells of half the width, forward and backward in time (arXiv:1409.0473).

Sequences that are packed in a row do not see each other: states begin anew with each, in both directions.

B batch, L length of the source, T length of the target, I size of the input, D width.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn
from recurrent import cells
from recurrent.attention import Options
from recurrent.cells import Cell

from bert_jax.layers.dropout import maybe_dropout
from bert_jax.layers.embeddings import Embedder
from bert_jax.parallel import constraints


class Sizes(NamedTuple):
    """What encoder and decoder share."""

    layers: int
    width: int
    cell: str
    input_feeding: bool
    dropout: float
    initializer: float
    dtype: jnp.dtype
    gradient_dtype: jnp.dtype
    attention: Options | None  # of the decoder; None: it sees the encoder's last states alone

    def make_cell(self, size: int) -> Cell:
        return Cell(self.cell, size, self.initializer, self.gradient_dtype, parent=None)


class Bidirectional(nn.Module):
    """A layer of the encoder."""

    forward: Cell
    backward: Cell

    def __call__(self, x, ids) -> tuple:
        """Returns the states forward and backward, tuples of [B, L, D / 2]. x: [B, L, I]. ids: int32[B, L]."""
        padded = jnp.pad(ids, ((0, 0), (1, 1)), constant_values=-1)
        before = padded[:, :-2]
        after = padded[:, 2:]
        return (
            self.read(self.forward, False, x, ids != before),
            self.read(self.backward, True, x, ids != after),
        )

    def read(self, cell: Cell, is_reverse: bool, x, is_first) -> tuple:
        """Returns the states of a cell, see `cells.scan`."""
        scan = partial(cells.scan, cell.kind, is_reverse, cell.gradient_dtype)
        return constraints.map_rows(scan)(cell.project(x), is_first, kernels=cell.kernels())


class Encoder(nn.Module):
    """Rows of the source to states. It has the word embeddings."""

    embedder: Embedder
    sizes: Sizes

    def setup(self):
        sizes = self.sizes
        self.blocks = [
            Bidirectional(sizes.make_cell(sizes.width // 2), sizes.make_cell(sizes.width // 2))
            for _ in range(sizes.layers)
        ]

    def embed(self, tokens, keys, number: int = 0):
        """Returns [B, L, D] in `dtype`: word embeddings times the root of the width. keys, number: of dropout."""
        sizes = self.sizes
        x = self.embedder(tokens, None, None) * sizes.width**0.5
        return maybe_dropout(x.astype(sizes.dtype), keys, number, sizes.dropout)

    def vocabulary_logits(self, x):
        return self.embedder.vocabulary_logits(x)

    def __call__(self, batch, keys=None) -> tuple[list, list]:
        """Returns the states [B, L, D] of the embeddings and of each layer, and what each layer returns."""
        x = self.embed(batch["tokens"], keys)
        states = [x]
        directions = []
        for number, block in enumerate(self.blocks):
            if number:
                x = maybe_dropout(x, keys, number, self.sizes.dropout)
            both = block(x, batch["sequence_ids"])
            x = jnp.concatenate([direction[0] for direction in both], axis=-1)
            x = constraints.stream(x.astype(self.sizes.dtype))
            states.append(x)
            directions.append(both)
        return states, directions


def last_states(directions: list, source_ids, target_ids) -> list:
    """Returns for each token of the target the last states of its source: of each layer a tuple of [B, T, D].

    These are the state forward after the last token of the source, and the one backward after its first token.

    directions: see `Encoder`.
    """
    is_own = source_ids[:, None] == target_ids[..., None]
    first = is_own.argmax(axis=-1)[..., None]
    last = is_own.shape[-1] - 1 - is_own[..., ::-1].argmax(axis=-1)[..., None]

    def take(forward, backward):
        ends = (
            jnp.take_along_axis(forward, last, axis=1),
            jnp.take_along_axis(backward, first, axis=1),
        )
        return jnp.concatenate(ends, axis=-1)

    return [jax.tree.map(take, *both) for both in directions]
