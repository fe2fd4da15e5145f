"""Fingerprints depend on every bit and index, and are the same on any mesh and on the host."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from kits.small import mesh_of

from bert_jax.checkpoints import fingerprint
from bert_jax.errors import Unfinished
from bert_jax.parallel.mesh import TABLE

SPECS = {"words": TABLE, "kernel": P("fsdp", "tensor"), "bias": P("tensor"), "scale": P()}
SPECS |= {"half": P("fsdp", None), "count": P()}


@pytest.fixture
def tree():
    draw = np.random.default_rng(0)
    shapes = {"words": (48, 8), "kernel": (8, 16), "bias": (16,), "scale": (8,)}
    arrays = {name: draw.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    half = np.asarray(jnp.asarray(draw.normal(size=(8, 4)), jnp.bfloat16))
    return arrays | {"half": half, "count": np.array(7, np.int32)}


def on_mesh(tree, mesh):
    """Returns (program, the tree on the devices)."""
    shardings = {name: NamedSharding(mesh, SPECS[name]) for name in tree}
    return fingerprint.lower(mesh, tree, shardings).compile(), jax.device_put(tree, shardings)


@pytest.mark.parametrize("shape", [(1, 1, 1), (8, 1, 1), (2, 2, 2)])
def test_a_fingerprint_is_the_same_on_any_mesh(tree, shape):
    mesh = mesh_of(shape)
    program, placed = on_mesh(tree, mesh)
    assert fingerprint.compute(program, placed, mesh) == fingerprint.of_tree(tree)


@pytest.mark.slow
def test_every_single_bit_flip_changes_the_fingerprint(tree):
    """No two single-bit flips of an array have the same fingerprint."""
    array = tree["bias"]
    seen = {fingerprint.of_array(array).digest}
    for index in range(array.size):
        for bit in range(32):
            flipped = array.copy()
            flipped.view(np.uint32)[index] ^= np.uint32(1 << bit)
            seen.add(fingerprint.of_array(flipped).digest)
    assert len(seen) == 1 + 32 * array.size


def test_swapped_rows_and_other_shapes_change_the_fingerprint(tree):
    table = tree["words"]
    swapped = table[[1, 0, *range(2, len(table))]]
    assert fingerprint.of_array(swapped).digest != fingerprint.of_array(table).digest
    assert fingerprint.of_array(table.reshape(8, 48)) != fingerprint.of_array(table)
    zeros = np.zeros((4, 8), np.float32)
    assert fingerprint.of_array(zeros).digest != fingerprint.of_array(zeros[:3]).digest


@pytest.mark.parametrize(("name", "shape"), [("scale", (8, 1, 1)), ("kernel", (2, 2, 2))])
def test_a_copy_that_differs_is_named_with_its_device(tree, name, shape):
    """For a replicated array, and for one that is sharded over some axes and replicated over others."""
    mesh = mesh_of(shape)
    program, placed = on_mesh(tree, mesh)
    shards = placed[name].addressable_shards
    parts = [np.array(shard.data) for shard in shards]
    parts[6].flat[0] = np.nextafter(parts[6].flat[0], np.float32(9))
    arrays = [jax.device_put(part, shard.device) for part, shard in zip(parts, shards, strict=True)]
    like = tree[name].shape, placed[name].sharding
    placed[name] = jax.make_array_from_single_device_arrays(*like, arrays)
    device = str(shards[6].device) if name == "scale" else ""  # of two copies, either may be wrong
    with pytest.raises(Unfinished, match=f"{name} on {device}"):
        fingerprint.compute(program, placed, mesh)


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("name", ["words", "half"])
def test_values_that_are_not_finite_are_named(tree, name, value):
    tree[name] = tree[name].copy()
    tree[name][3, 2] = value
    mesh = mesh_of((2, 2, 2))
    program, placed = on_mesh(tree, mesh)
    with pytest.raises(FloatingPointError, match=name):
        fingerprint.compute(program, placed, mesh)
