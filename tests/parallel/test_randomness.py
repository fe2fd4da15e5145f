"""Dropout drops the same elements on every mesh (the same losses: test_meshes.py)."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from kits.small import mesh_of

from bert_jax import prng
from bert_jax.models import layers

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
    shardings = [NamedSharding(mesh, P(*s)) for s in (spec, (ROWS,))]
    function = jax.jit(
        partial(layers.dropout, rate=0.1), in_shardings=shardings, out_shardings=shardings[0]
    )
    found = function(jnp.ones(size), keys)
    np.testing.assert_array_equal(np.asarray(found), expected)
    assert 0.05 < (expected == 0).mean() < 0.15
