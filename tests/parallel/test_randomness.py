"""Dropout: the same elements on every mesh, at a cost a device that does not grow with the mesh."""

import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from kits.slices import compiling, devices, needs_libtpu
from kits.small import VOCABULARY, small_batch, small_config

from bert_jax import build, prng
from bert_jax.models import layers
from bert_jax.objectives import base
from bert_jax.parallel import mesh as meshes
from bert_jax.planning import hlo, timeline

MESHES = [(8, 1, 1), (1, 8, 1), (1, 1, 8), (2, 2, 2)]
ROWS = ("data", "fsdp")


def mesh_of(shape, places=None):
    sizes = [f"mesh.{name}={size}" for name, size in zip(meshes.AXES, shape, strict=True)]
    return meshes.make_mesh(small_config(*sizes).mesh, places)


@pytest.mark.parametrize("shape", MESHES)
@pytest.mark.parametrize(
    "size, spec",
    [
        ((16, 8, 32), (ROWS,)),
        ((16, 8, 32), (ROWS, None, "tensor")),
        ((16, 8, 5, 5), (ROWS, "tensor")),
    ],
)
def test_the_same_elements_are_dropped_on_every_mesh(shape, size, spec):
    keys = prng.fold(jnp.uint32(7), jnp.arange(size[0], dtype=jnp.uint32))
    expected = np.asarray(layers.dropout(jnp.ones(size), keys, 0.1))
    mesh = mesh_of(shape)
    places = [NamedSharding(mesh, P(*s)) for s in (spec, (ROWS,))]
    function = jax.jit(
        partial(layers.dropout, rate=0.1), in_shardings=places, out_shardings=places[0]
    )
    found = function(jnp.ones(size), keys)
    np.testing.assert_array_equal(np.asarray(found), expected)
    assert 0.05 < (expected == 0).mean() < 0.15


@pytest.mark.slow
@pytest.mark.parametrize("shape", MESHES[-2:])
def test_a_model_with_dropout_has_the_same_loss_on_every_mesh(shape):
    """Of one forward pass, so that no update hides a difference."""
    objective, rows = base.make(small_config("model.heads=8"), VOCABULARY), small_batch()
    params = jax.jit(objective.init)(jax.random.key(0), rows)
    loss = jax.jit(partial(objective.loss, train=True), static_argnames="train")
    totals = objective.weights(rows)
    expected = loss(params, rows, totals, np.uint32(3))[0]
    other = loss(params, rows, totals, np.uint32(4))[0]
    mesh = mesh_of(shape)
    with jax.set_mesh(mesh):
        params = jax.device_put(params, meshes.parameters(params, mesh))
        placed = meshes.to_devices(mesh, rows, np.arange(16), 16)
        found = loss(params, placed, totals, np.uint32(3))[0]
    assert abs(float(found / expected) - 1) < 1e-6 < abs(float(other / expected) - 1)


def cost(places) -> dict:
    """What one of these devices does of the training step with two rows a device, all dropout on."""
    config = small_config(f"phases.main.batch={2 * len(places)}", "dtype=bfloat16")
    mesh = mesh_of((len(places), 1, 1), places)
    made = build.build(config, mesh, VOCABULARY)
    text = made.train["main"].as_text()
    instructions = list(hlo.instructions(text))
    return {
        "generators": sum(i.opcode.startswith("rng") for i in instructions),
        "largest": max(math.prod(a.shape) for i in instructions for a in i.results),
        "temporaries": hlo.memory(made.train["main"]).temporaries,
        "arguments": hlo.memory(made.train["main"]).arguments,
        "cycles": timeline.cycles(timeline.read(text, mesh)),
    }


@needs_libtpu
@pytest.mark.full
def test_a_device_does_the_same_work_on_four_and_on_sixty_four():
    with compiling():
        few, many = (cost(devices(name)) for name in ("v5e:2x2", "v5e:8x8"))
    print(few, many)
    assert few["generators"] == many["generators"] == 0
    assert few["largest"] == many["largest"] and few["arguments"] == many["arguments"]
    assert many["temporaries"] <= few["temporaries"] * 1.05 + 1e5
    assert few["cycles"] * 0.95 <= many["cycles"] <= few["cycles"] * 1.05
