"""Sharded embedding tables: a lookup equals indexing (gradients and collectives: test_meshes.py)."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from kits.small import mesh_of

from bert_jax.parallel import constraints

PIECES, WIDTH = 64, 8
DRAW = np.random.default_rng(0)
WORDS = DRAW.normal(size=(PIECES, WIDTH)).astype(np.float32)
IDS = DRAW.integers(0, PIECES, (16, 6)).astype(np.int32)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
@pytest.mark.parametrize("rows", [16, 1])  # one row does not divide over a mesh
@pytest.mark.parametrize("shape", [(1, 1, 1), (2, 2, 2), (1, 8, 1), (2, 1, 4)])
def test_vectors_are_those_of_the_rounded_table_on_any_mesh(shape, rows, dtype):
    lookup = jax.jit(constraints.lookup, static_argnums=(2, 3))
    with jax.set_mesh(mesh_of(shape)):
        vectors = lookup(WORDS, IDS[:rows], dtype, jnp.float32)
    assert vectors.dtype == np.float32
    np.testing.assert_array_equal(vectors, WORDS.astype(dtype)[IDS[:rows]].astype(np.float32))
