"""Tables in parts: looking words up is indexing, and what rows add to a table is summed part by part."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from kits.small import small_config

from bert_jax.parallel import constraints
from bert_jax.parallel import mesh as meshes

PIECES, WIDTH = 64, 8
DRAW = np.random.default_rng(0)
WORDS = DRAW.normal(size=(PIECES, WIDTH)).astype(np.float32)
IDS = DRAW.integers(0, PIECES, (16, 6)).astype(np.int32)
VECTORS = DRAW.normal(size=(16, 6, WIDTH)).astype(np.float32)
LOGITS = DRAW.normal(size=(16, 6, PIECES)).astype(np.float32)


def mesh_of(*shape):
    keys = [f"mesh.{name}={size}" for name, size in zip(constraints.AXES, shape, strict=True)]
    return meshes.make_mesh(small_config(*keys).mesh)


def looked_up(words, dtype=jnp.float32):
    return (constraints.lookup(words, IDS, dtype) * VECTORS).sum()


def product(logits, x):
    return jnp.einsum("blv,bld->vd", logits, x)


def equations(jaxpr):
    """Of a program and all that it calls."""
    for equation in jaxpr.eqns:
        yield equation
        for value in equation.params.values():
            inner = getattr(value, "jaxpr", value)
            if hasattr(inner, "eqns"):
                yield from equations(inner)


def reductions(function, *arguments) -> set[tuple]:
    """{(axis, shape, dtype)} of what is summed over devices."""
    found = set()
    for equation in equations(jax.make_jaxpr(function)(*arguments).jaxpr):
        if equation.primitive.name in ("psum", "psum_invariant", "reduce_scatter"):
            names = equation.params.get("axes") or equation.params.get("axis_name")
            names = names if isinstance(names, tuple) else (names,)
            array = equation.invars[0].aval
            found |= {(name, array.shape, array.dtype.name) for name in names}
    return found


@pytest.mark.parametrize("shape", [(2, 2, 2), (1, 8, 1), (2, 1, 4)])
def test_a_lookup_is_an_index(shape):
    with jax.set_mesh(mesh_of(*shape)):
        vectors = jax.jit(constraints.lookup, static_argnums=2)(WORDS, IDS, jnp.float32)
        gradient = jax.jit(jax.grad(looked_up))(WORDS)
        table = jax.jit(lambda a, b: constraints.sum_to_table(product, a, b))(LOGITS, VECTORS)
    np.testing.assert_array_equal(vectors, WORDS[IDS])
    expected = np.zeros_like(WORDS)
    np.add.at(expected, IDS, VECTORS)
    np.testing.assert_allclose(gradient, expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(table, product(LOGITS, VECTORS), rtol=1e-4, atol=1e-5)


def test_the_sums_are_of_parts_and_in_the_dtype_of_gradients():
    """On 2 x 2 x 2 devices a fourth of the table is a part, which `data` sums; `fsdp` scatters two of them."""
    with jax.set_mesh(mesh_of(2, 2, 2)):
        found = reductions(jax.grad(lambda words: looked_up(words, jnp.bfloat16)), WORDS)
        ours = {("data", (16, WIDTH), "bfloat16"), ("fsdp", (32, WIDTH), "bfloat16")}
        assert {each for each in found if each[0] != "tensor"} == ours
        found = reductions(lambda a, b: constraints.sum_to_table(product, a, b), LOGITS, VECTORS)
        assert found == {("data", (16, WIDTH), "float32"), ("fsdp", (32, WIDTH), "float32")}


def test_rows_that_do_not_divide_are_left_to_the_compiler():
    with jax.set_mesh(mesh_of(2, 2, 2)):
        few = reductions(lambda words: constraints.lookup(words, IDS[:1], jnp.float32), WORDS)
        assert few == set()
        vectors = jax.jit(constraints.lookup, static_argnums=2)(WORDS, IDS[:1], jnp.float32)
    np.testing.assert_array_equal(vectors, WORDS[IDS[:1]])
