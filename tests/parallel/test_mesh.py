"""Sharding rules, meshes, and the rows of each device."""

import re
from functools import partial

import jax
import numpy as np
import pytest
from jax.sharding import AxisType, Mesh
from jax.sharding import PartitionSpec as P
from kits.small import mesh_keys, mesh_of, small_batch, small_config, small_objective

from bert_jax import optimizer, step, train
from bert_jax.errors import BadInput
from bert_jax.models import base as models
from bert_jax.models import bert
from bert_jax.parallel import mesh as meshes


@pytest.mark.parametrize("name", ["adam", "lamb", "muon"])
def test_large_parameters_and_their_moments_are_sharded(name):
    update = optimizer.make(small_config(f"optimizer.name={name}"), lambda step: 0.0, None)
    initialize = partial(step.init, small_objective(), update, 3, small_batch())
    shapes = jax.eval_shape(initialize)
    shardings = meshes.state(shapes, mesh_of((2, 2, 2)))
    of_params = meshes.by_path(shardings.params)
    of_moments = {
        path: re.split("/[mn]u/", path)[1]
        for path in meshes.by_path(shardings.opt_state)
        if re.search("/[mn]u/", path)
    }
    matrices = 12 if name == "muon" else 0  # of two blocks; they have one moment
    assert len(of_moments) == 2 * len(of_params) - matrices
    for path, sharding in meshes.by_path(shardings.opt_state).items():
        if path in of_moments:
            assert sharding == of_params[of_moments[path]]
    parts = jax.tree.map(lambda leaf, sharding: sharding.shard_shape(leaf.shape), shapes, shardings)
    network = parts.params["network"]
    assert network["blocks_0"]["attention"]["query"]["kernel"] == (16, 16)  # of 32 x 32
    assert network["embedder"]["words"] == (64, 32)  # of 256 x 32
    small = ("positions", "segments", "pair")
    for path, leaf in jax.tree.leaves_with_path(shapes.params):
        name = meshes.path_name(path)
        if leaf.ndim == 2 and not any(word in name for word in small):
            assert meshes.match(name)[1] != P(), name


def test_a_parameter_that_no_rule_names_is_refused(monkeypatch):
    """For example that of Flax's Embed; the file of a model may have a rule for it, which comes first."""
    shapes = {"network": {"words": {"embedding": jax.ShapeDtypeStruct((50, 50), np.float32)}}}
    mesh = mesh_of((2, 2, 2))
    rules = ((r"words/embedding$", P("tensor")), *meshes.RULES)
    assert jax.tree.leaves(meshes.parameters(shapes, mesh, rules))[0].spec == P("tensor")
    with pytest.raises(BadInput, match="network/words/embedding"):
        meshes.parameters(shapes, mesh)
    with pytest.raises(BadInput, match="network/words/embedding"):
        models.decayed(small_config(), shapes)
    monkeypatch.setattr(bert, "DECAY", ((r"words/embedding$", False),), raising=False)
    assert jax.tree.leaves(models.decayed(small_config(), shapes)) == [False]


def test_the_data_axis_takes_the_remaining_devices():
    shape = dict(meshes.make_mesh(small_config("mesh.tensor=2")).shape)
    assert shape == {"data": 4, "fsdp": 1, "tensor": 2}
    for override in ("mesh.data=3", "mesh.tensor=16"):
        with pytest.raises(BadInput, match="config.mesh.* 8 devices"):
            meshes.make_mesh(small_config(override))


def test_each_device_gets_its_rows():
    """On a mesh whose devices are out of order, as on a real slice, each shard has its rows of the global batch."""
    order = [0, 5, 2, 7, 4, 1, 6, 3]
    devices = np.array(jax.devices())[order].reshape(4, 2, 1)
    mesh = Mesh(devices, meshes.AXES, axis_types=(AxisType.Auto,) * 3)
    positions = meshes.host_rows(mesh, 16)
    np.testing.assert_array_equal(positions, np.arange(16))
    rows = np.arange(32).reshape(16, 2)
    array = meshes.to_devices(mesh, {"x": rows}, positions, 16)["x"]
    for shard in array.addressable_shards:
        np.testing.assert_array_equal(shard.data, rows[shard.index])
        assert shard.data.shape == (2, 2)


@pytest.mark.parametrize(
    "shape, override, axis",
    [
        ((2, 1, 4), "model.heads=2", "mesh.tensor=4"),
        ((2, 1, 4), "model.feed_forward=66", "mesh.tensor=4"),
        ((1, 8, 1), "model.width=36", "mesh.fsdp=8"),
    ],
)
def test_models_that_do_not_divide_are_refused_at_the_start(shape, override, axis, tmp_path):
    with pytest.raises(BadInput, match=f"config.{override}.*config.{axis}"):
        train.pretrain(small_config(*mesh_keys(shape), override), tmp_path / "run")
    assert not list(tmp_path.iterdir())
