"""Places: rules, meshes, and which rows belong to which device."""

import jax
import numpy as np
import pytest
from jax.sharding import AxisType, Mesh
from kits.small import small_batch, small_config, small_objective

from bert_jax import train
from bert_jax.errors import BadInput
from bert_jax.parallel import mesh as meshes


def mesh_of(*shape):
    keys = dict(zip(meshes.AXES, shape, strict=True))
    config = small_config(*[f"mesh.{name}={size}" for name, size in keys.items()])
    return meshes.make_mesh(config.mesh, jax.devices()[: abs(int(np.prod(shape)))])


def test_every_parameter_matches_a_rule_and_the_large_ones_are_split():
    shapes = jax.eval_shape(small_objective().init, jax.random.key(0), small_batch())
    places = meshes.parameters(shapes, mesh_of(2, 2, 2))
    for (path, leaf), place in zip(
        jax.tree.leaves_with_path(shapes), jax.tree.leaves(places), strict=True
    ):
        name = meshes.path_name(path)
        if (
            leaf.ndim == 2
            and "positions" not in name
            and "segments" not in name
            and "pair" not in name
        ):
            assert place.shard_shape(leaf.shape) != leaf.shape, name
    with pytest.raises(BadInput, match="no sharding rule"):
        meshes.match("encoder/unheard_of/table")


def test_data_axis_takes_what_is_left():
    assert dict(meshes.make_mesh(small_config("mesh.tensor=2").mesh).shape) == {
        "data": 4,
        "fsdp": 1,
        "tensor": 2,
    }
    with pytest.raises(BadInput, match="does not fit 8 devices"):
        meshes.make_mesh(small_config("mesh.data=3").mesh)
    with pytest.raises(BadInput, match="does not fit 8 devices"):
        meshes.make_mesh(small_config("mesh.tensor=16").mesh)


def test_what_does_not_divide_is_refused():
    shapes = {"query": {"kernel": jax.ShapeDtypeStruct((30, 30), np.float32)}}
    with pytest.raises(BadInput, match="query/kernel.*does not divide"):
        meshes.parameters(shapes, mesh_of(1, 1, 4))
    with pytest.raises(BadInput, match="main.batch=12"):
        meshes.check_rows(mesh_of(8, 1, 1), 12, 1, "phases.main.batch")


def test_rows_reach_the_devices_they_belong_to():
    """On a mesh whose devices are out of order, as on a real slice, every shard is its rows of the global batch."""
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
    "shape, override, line",
    [
        (
            (2, 1, 4),
            "model.heads=2",
            "config.model.heads=2: does not divide over config.mesh.tensor=4",
        ),
        (
            (1, 1, 8),
            "model.heads=4",
            "config.model.heads=4: does not divide over config.mesh.tensor=8",
        ),
        (
            (2, 1, 4),
            "model.feed_forward=66",
            "config.model.feed_forward=66: does not divide over config.mesh.tensor=4",
        ),
        (
            (1, 8, 1),
            "model.width=36",
            "config.model.width=36: does not divide over config.mesh.fsdp=8",
        ),
    ],
)
def test_models_that_do_not_divide_are_refused_before_anything_is_written(
    shape, override, line, tmp_path
):
    sizes = [f"mesh.{name}={size}" for name, size in zip(meshes.AXES, shape, strict=True)]
    with pytest.raises(BadInput) as error:
        train.pretrain(small_config(*sizes, override), tmp_path / "run")
    assert str(error.value) == line
    assert not list(tmp_path.iterdir())


def test_a_vocabulary_that_does_not_divide_is_refused():
    shapes = {"embedder": {"words": jax.ShapeDtypeStruct((256, 96), np.float32)}}
    devices = jax.devices()[:6]
    mesh = meshes.make_mesh(small_config("mesh.fsdp=3", "mesh.tensor=2").mesh, devices)
    with pytest.raises(BadInput, match=r"config.mesh: embedder/words .*256.*=6"):
        meshes.parameters(shapes, mesh)
