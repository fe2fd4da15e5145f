"""Dropout: the same elements on every mesh."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from kits.small import VOCABULARY, mesh_of, small_batch, small_config

from bert_jax import prng
from bert_jax.models import layers
from bert_jax.objectives import base
from bert_jax.parallel import mesh as meshes

MESHES = [(8, 1, 1), (1, 8, 1), (1, 1, 8), (2, 2, 2)]
ROWS = ("data", "fsdp")


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
