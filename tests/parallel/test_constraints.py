"""Sharded embedding tables: a lookup equals indexing (gradients and collectives: test_meshes.py). A scan over time on
the rows of each device."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from kits.small import mesh_of

from bert_jax.parallel import constraints
from bert_jax.parallel import mesh as meshes
from bert_jax.planning import timeline

PIECES, WIDTH = 64, 8
DRAW = np.random.default_rng(0)
WORDS = DRAW.normal(size=(PIECES, WIDTH)).astype(np.float32)
IDS = DRAW.integers(0, PIECES, (16, 6)).astype(np.int32)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
@pytest.mark.parametrize("rows", [16, 1])  # one row is not divisible by a mesh
@pytest.mark.parametrize("shape", [(1, 1, 1), (2, 2, 2), (1, 8, 1), (2, 1, 4)])
def test_vectors_are_those_of_the_rounded_table_on_any_mesh(shape, rows, dtype):
    lookup = jax.jit(constraints.lookup, static_argnums=(2, 3))
    with jax.set_mesh(mesh_of(shape)):
        vectors = lookup(WORDS, IDS[:rows], dtype, jnp.float32)
    assert vectors.dtype == np.float32
    np.testing.assert_array_equal(vectors, WORDS.astype(dtype)[IDS[:rows]].astype(np.float32))


STEPS = 7
CELL = {
    "input": DRAW.normal(size=(WIDTH, WIDTH)).astype(np.float32),
    "hidden": DRAW.normal(size=(WIDTH, WIDTH)).astype(np.float32),
    "bias": DRAW.normal(size=WIDTH).astype(np.float32),
}
SEQUENCES = DRAW.normal(size=(16, STEPS, WIDTH)).astype(np.float32)


def recur(x, cell):
    """Returns the states [B, T, D] of a recurrent layer of x[B, T, D]."""

    def step(state, x):
        state = jnp.tanh(x @ cell["input"] + state @ cell["hidden"] + cell["bias"])
        return state, state

    start = jnp.zeros((len(x), WIDTH))
    return jax.lax.scan(step, start, x.swapaxes(0, 1))[1].swapaxes(0, 1)


def learn(function, mesh):
    """Returns the gradients of the cell and of its inputs, and the collectives in the loops of the program."""

    def loss(cell, x):
        return (function(x, cell=cell) ** 2).sum()

    sharding = {"input": P("fsdp", "tensor"), "hidden": P("fsdp", "tensor"), "bias": P("tensor")}
    places = {name: NamedSharding(mesh, spec) for name, spec in sharding.items()}
    with jax.set_mesh(mesh):
        arguments = jax.device_put((CELL, SEQUENCES), (places, meshes.rows(mesh)))
        program = jax.jit(jax.grad(loss, argnums=(0, 1))).lower(*arguments).compile()
        gradients = jax.device_get(program(*arguments))
    events = timeline.read(program.as_text(), mesh)
    loops = [event for event in events if event[0] == "loop"]
    sent = [times for event, times in timeline.walk(loops) if event[0] in ("send", "start")]
    assert len(loops) == 2 and {event[1] for event in loops} == {STEPS}
    return gradients, sum(sent)


@pytest.mark.parametrize("shape", [(8, 1, 1), (1, 8, 1), (2, 2, 2)])
def test_a_scan_over_the_rows_of_a_device_sends_nothing(shape):
    """In its loops, forward and backward; the gradients are those of one device."""
    expected, _ = learn(recur, mesh_of((1, 1, 1)))
    mesh = mesh_of(shape)
    _, by_compiler = learn(recur, mesh)
    gradients, sent = learn(constraints.map_rows(recur), mesh)
    assert by_compiler >= STEPS and sent == 0
    for actual, exact in zip(*map(jax.tree.leaves, (gradients, expected)), strict=True):
        np.testing.assert_allclose(actual, exact, rtol=1e-4, atol=1e-4)
