"""Meshes of real TPU slices: the rows of each host, and several slices."""

import jax
import numpy as np
import pytest
from kits.slices import devices, needs_libtpu
from kits.small import mesh_of, small_config

from bert_jax.errors import BadInput
from bert_jax.parallel import mesh as meshes

pytestmark = needs_libtpu


@pytest.mark.parametrize("shape", [(16, 1, 1), (2, 4, 2), (1, 4, 4)])
@pytest.mark.parametrize("slices", [1, 2])
def test_hosts_read_every_row_and_only_those_of_their_devices(monkeypatch, shape, slices):
    options = {"num_slices": 2} if slices == 2 else {}
    mesh = mesh_of((shape[0] * slices, *shape[1:]), devices("v5e:4x4", **options))
    rows, parts = 64, shape[0] * shape[1] * slices
    per_device = np.arange(rows).reshape(shape[0] * slices, shape[1], rows // parts)
    hosts = sorted({device.process_index for device in mesh.devices.flat})
    assert len(hosts) == 4 * slices
    seen = []
    for host in hosts:
        expected = set()
        for index in np.ndindex(mesh.devices.shape):
            if mesh.devices[index].process_index == host:
                expected |= set(per_device[index[:2]])
        monkeypatch.setattr(jax, "process_index", lambda host=host: host)
        found = meshes.host_rows(mesh, rows)
        assert found.tolist() == sorted(expected)
        seen.append(found)
    times = np.bincount(np.concatenate(seen), minlength=rows)
    # Devices along `tensor` read the same rows, and may be on different hosts.
    assert times.min() >= 1 and (shape[2] > 1 or times.max() == 1)


@pytest.mark.parametrize("shape", [(2, 16, 1), (4, 4, 2), (-1, 2, 2), (32, 1, 1)])
def test_only_the_data_axis_extends_across_slices(shape):
    """-1 takes the remaining devices of all slices."""
    mesh = mesh_of(shape, devices("v5e:4x4", num_slices=2))
    shape = (abs(shape[0] * 8) if shape[0] < 0 else shape[0], *shape[1:])
    slices = np.vectorize(lambda device: device.slice_index)(mesh.devices)
    assert len(np.unique(slices)) == 2 and mesh.devices.shape == shape
    assert (slices == slices[:, :1, :1]).all()
    assert np.ptp(slices[: shape[0] // 2]) == 0 and np.ptp(slices[shape[0] // 2 :]) == 0


@pytest.mark.parametrize("shape", [(1, 32, 1), (1, 16, 2), (-1, 1, 32)])
def test_parameters_sharded_across_slices_are_refused(shape):
    with pytest.raises(BadInput, match="config.mesh: .*2 slices"):
        mesh_of(shape, devices("v5e:4x4", num_slices=2))


@pytest.mark.parametrize(
    "name, slices, keys, shape",
    [
        ("v5e:4x4", 1, (), (1, 16, 1)),
        ("v5e:4x4", 2, (), (2, 16, 1)),
        ("v5e:4x4", 1, ("mesh.fsdp=1",), (16, 1, 1)),
        ("v5e:4x4", 1, ("model.width=24", "model.heads=2"), (2, 8, 1)),
        ("v5e:16x16", 1, ("model.width=256",), (2, 128, 1)),  # the vocabulary is a multiple of 128
    ],
)
def test_the_default_shards_the_state_over_a_slice(name, slices, keys, shape):
    options = {"num_slices": slices} if slices > 1 else {}
    mesh = meshes.make_mesh(small_config(*keys), devices(name, **options))
    assert tuple(mesh.shape.values()) == shape
    assert meshes.make_mesh(small_config()).shape["fsdp"] == 1  # on CPUs
