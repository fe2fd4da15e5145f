"""Fingerprints change with every bit and place, and are the same on any mesh and by NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from kits.small import small_config

from bert_jax.checkpoints import fingerprint
from bert_jax.errors import Unfinished
from bert_jax.parallel import mesh as meshes
from bert_jax.parallel.constraints import AXES, TABLE

SPECS = {"words": TABLE, "kernel": P("fsdp", "tensor"), "bias": P("tensor"), "scale": P()}
SPECS |= {"half": P("fsdp", None), "count": P()}


@pytest.fixture
def tree():
    draw = np.random.default_rng(0)
    shapes = {"words": (48, 8), "kernel": (8, 16), "bias": (16,), "scale": (8,)}
    arrays = {name: draw.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    half = np.asarray(jnp.asarray(draw.normal(size=(8, 4)), jnp.bfloat16))
    return arrays | {"half": half, "count": np.array(7, np.int32)}


def make_mesh(data, fsdp, tensor) -> Mesh:
    keys = small_config(f"mesh.data={data}", f"mesh.fsdp={fsdp}", f"mesh.tensor={tensor}").mesh
    return meshes.make_mesh(keys, jax.devices()[: data * fsdp * tensor])


def on_mesh(tree, mesh):
    """(program, the tree on the devices)."""
    places = {name: NamedSharding(mesh, SPECS[name]) for name in tree}
    return fingerprint.lower(mesh, tree, places).compile(), jax.device_put(tree, places)


def by_numpy(tree) -> dict:
    return {name: fingerprint.of_array(array) for name, array in tree.items()}


@pytest.mark.parametrize("shape", [(1, 1, 1), (8, 1, 1), (2, 2, 2), (1, 4, 2), (1, 1, 8)])
def test_the_same_on_any_mesh(tree, shape):
    mesh = make_mesh(*shape)
    program, placed = on_mesh(tree, mesh)
    assert fingerprint.read(program, placed, mesh) == by_numpy(tree)


def test_every_bit_of_every_element_counts(tree):
    """All flips of a whole array, of which no two have the same fingerprint."""
    array = tree["bias"]
    seen = {fingerprint.of_array(array).digest}
    for place in range(array.size):
        for bit in range(32):
            flipped = array.copy()
            flipped.view(np.uint32)[place] ^= np.uint32(1 << bit)
            first = fingerprint.of_array(flipped).digest
            seen.add(first)
    assert len(seen) == 1 + 32 * array.size


def test_swapped_rows_and_other_shapes_show(tree):
    table = tree["words"]
    swapped = table[[1, 0, *range(2, len(table))]]
    assert fingerprint.of_array(swapped).digest != fingerprint.of_array(table).digest
    assert fingerprint.of_array(table.reshape(8, 48)) != fingerprint.of_array(table)
    zeros = np.zeros((4, 8), np.float32)
    assert fingerprint.of_array(zeros).digest != fingerprint.of_array(zeros[:3]).digest


def test_long_arrays_are_counted_in_parts(monkeypatch, tree):
    whole = fingerprint.of_array(tree["words"])
    monkeypatch.setattr(fingerprint, "CHUNK", 7)
    assert fingerprint.of_array(tree["words"]) == whole


def test_a_copy_that_differs_is_named_with_its_device(tree):
    mesh = make_mesh(8, 1, 1)
    program, placed = on_mesh(tree, mesh)
    copies = [np.array(tree["bias"]) for _ in range(8)]
    copies[5][3] = np.nextafter(copies[5][3], np.float32(9))
    parts = [
        jax.device_put(copy, device) for copy, device in zip(copies, mesh.devices.flat, strict=True)
    ]
    place = NamedSharding(mesh, P())
    placed["bias"] = jax.make_array_from_single_device_arrays((16,), place, parts)
    with pytest.raises(Unfinished, match=f"bias on {mesh.devices.flat[5]}"):
        fingerprint.read(program, placed, mesh)


def test_a_part_that_differs_on_one_of_its_devices_is_named(tree):
    """Of an array that is split over some axes and copied over others."""
    mesh = make_mesh(2, 2, 2)
    program, placed = on_mesh(tree, mesh)
    shards = placed["kernel"].addressable_shards
    parts = [np.array(shard.data) for shard in shards]
    parts[6][0, 0] += 1
    arrays = [jax.device_put(part, shard.device) for part, shard in zip(parts, shards, strict=True)]
    placed["kernel"] = jax.make_array_from_single_device_arrays(
        (8, 16), placed["kernel"].sharding, arrays
    )
    with pytest.raises(Unfinished, match="copies that devices hold differ: kernel on "):
        fingerprint.read(program, placed, mesh)


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("name", ["words", "half"])
def test_values_that_are_not_finite_are_named(tree, name, value):
    tree[name] = tree[name].copy()
    tree[name][3, 2] = value
    mesh = make_mesh(2, 2, 2)
    program, placed = on_mesh(tree, mesh)
    with pytest.raises(FloatingPointError, match=f"not finite in {name} \\(1\\)"):
        fingerprint.read(program, placed, mesh)


def test_differences_are_named():
    leaf = fingerprint.Leaf("float32", [2], "0" * 16)
    kept = {"a": leaf}
    assert fingerprint.differences(kept, kept) == ""
    assert "a is missing" == fingerprint.differences(kept, {})
    assert "b has no fingerprint" == fingerprint.differences(kept, kept | {"b": leaf})
    other = leaf._replace(digest="1" * 16)
    assert "a is not what was saved (values)" == fingerprint.differences(kept, {"a": other})
    assert "[3]" in fingerprint.differences(kept, {"a": leaf._replace(shape=[3])})


def test_axes():
    assert AXES == ("data", "fsdp", "tensor")
    assert fingerprint.axes_of(TABLE) == {"fsdp", "tensor"} and not fingerprint.axes_of(P())
