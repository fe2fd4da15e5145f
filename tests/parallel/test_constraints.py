"""Sharded embedding tables: a lookup equals indexing, its gradient the sum of rows (collectives: test_meshes.py)."""

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
VECTORS = DRAW.normal(size=(16, 6, WIDTH)).astype(np.float32)
LOGITS = DRAW.normal(size=(16, 6, PIECES)).astype(np.float32)


lookup = jax.jit(constraints.lookup, static_argnums=(2, 3))


def looked_up(words):
    return (constraints.lookup(words, IDS, jnp.float32, jnp.float32) * VECTORS).sum()


def product(logits, x):
    return jnp.einsum("blv,bld->vd", logits, x)


@pytest.mark.parametrize("shape", [(2, 2, 2), (1, 8, 1), (2, 1, 4)])
def test_a_lookup_and_its_gradient_equal_indexing(shape):
    with jax.set_mesh(mesh_of(shape)):
        vectors = lookup(WORDS, IDS, jnp.float32, jnp.float32)
        one_row = lookup(WORDS, IDS[:1], jnp.float32, jnp.float32)  # does not divide
        gradient = jax.jit(jax.grad(looked_up))(WORDS)
        table = jax.jit(lambda a, b: constraints.sum_to_table(product, a, b))(LOGITS, VECTORS)
    np.testing.assert_array_equal(vectors, WORDS[IDS])
    np.testing.assert_array_equal(one_row, WORDS[IDS[:1]])
    expected = np.zeros_like(WORDS)
    np.add.at(expected, IDS, VECTORS)
    np.testing.assert_allclose(gradient, expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(table, product(LOGITS, VECTORS), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("shape", [(1, 1, 1), (2, 2, 2), (1, 8, 1)])
def test_vectors_are_those_of_the_rounded_table_on_any_mesh(shape):
    with jax.set_mesh(mesh_of(shape)):
        vectors = lookup(WORDS, IDS, jnp.bfloat16, jnp.float32)
    expected = np.asarray(jnp.asarray(WORDS).astype(jnp.bfloat16).astype(jnp.float32))[IDS]
    assert vectors.dtype == np.float32
    np.testing.assert_array_equal(vectors, expected)
