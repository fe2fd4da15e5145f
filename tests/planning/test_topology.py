"""Slices by name, against those that libtpu knows, and chips against what its compiler says of them."""

import math
import os
import subprocess
import sys
from collections import Counter
from importlib.metadata import PackageNotFoundError

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, SingleDeviceSharding
from kits.slices import compiling, needs_libtpu

from bert_jax.errors import BadInput
from bert_jax.parallel import chips
from bert_jax.planning import compilation, timeline, topology


@pytest.mark.parametrize(
    "name, expected",
    [
        ("v5e:4x4", "v5e:4x4"),
        ("v5litepod-16", "v5e:4x4"),
        ("v5e-16", "v5e:4x4"),
        ("v5p-8", "v5p:2x2x1"),  # of cores: four chips
        ("v3-8", "v3:2x2"),
        ("v4-128", "v4:4x4x4"),
        ("v6e-256", "v6e:16x16"),
    ],
)
def test_names(name, expected):
    assert topology.find(name).name == expected


def test_every_name_names_one():
    slices = topology.known()
    assert all(topology.find(one.name) == one for one in slices)
    assert all(topology.find(one.accelerator_type) == one for one in slices)


@pytest.mark.parametrize(
    "name, words",
    [
        ("v5e:3x3", "v5e comes as 1x1 2x2 2x4 4x4 4x8 8x8 8x16 16x16"),
        ("v5litepod-5", "v5e comes as 1x1"),
        ("v9:2x2", "expected all, v5e, v5e:4x4 or v5litepod-16, of v2: 2x2 "),
        ("", "expected all"),
    ],
)
def test_what_is_not_one_lists_those_that_are(name, words):
    with pytest.raises(BadInput, match=f"^--topology {name}: {words}"):
        topology.find(name)


def test_without_libtpu_the_extra_is_named(monkeypatch):
    def version(name):
        raise PackageNotFoundError(name)

    monkeypatch.setattr(topology, "version", version)
    with pytest.raises(BadInput, match=r"libtpu: .*bert_jax\[plan\]"):
        topology.devices(topology.find("v5e:2x2"))


@needs_libtpu
def test_a_libtpu_that_is_damaged(tmp_path):
    """In a process of its own: this one has loaded it."""
    library = tmp_path / "libtpu.so"
    library.write_bytes(b"\x7fELF, once")
    given = os.environ | {"TPU_LIBRARY_PATH": str(library)}
    command = [sys.executable, "-m", "bert_jax", "plan", "--config", "demo", "--topology", "v5e"]
    ended = subprocess.run(command, env=given, capture_output=True, text=True)
    assert ended.returncode == 2 and ended.stderr.count("\n") == 1
    assert ended.stderr.startswith("bert-jax: libtpu: cannot be loaded, pip install ")
    assert str(library) in ended.stderr


@needs_libtpu
@pytest.mark.parametrize("one", topology.known(), ids=lambda one: one.name)
def test_libtpu_knows_every_slice(one):
    devices = topology.devices(one)
    assert len(devices) == one.chips * one.chip.devices
    assert len({tuple(device.coords) for device in devices}) == one.chips
    extents = 1 + np.max([device.coords for device in devices], axis=0)
    assert tuple(extents[: len(one.shape)]) == one.shape and math.prod(extents) == one.chips
    assert len({device.process_index for device in devices}) == max(1, one.chips // 4)
    assert chips.utilization(one.chip.flops * one.chips, devices) == pytest.approx(1)


@needs_libtpu
@pytest.mark.parametrize("kind", chips.CHIPS)
def test_the_compiler_agrees_about_a_chip(kind):
    """Cycles of a large matrix product fit the published peak; what does not fit is told with the memory there is."""
    one = topology.make(kind, chips.CHIPS[kind].shapes[0])
    device = topology.devices(one)[0]
    place = SingleDeviceSharding(device)
    x = jax.ShapeDtypeStruct((4096, 4096), jnp.bfloat16, sharding=place)
    with compiling():
        text = jax.jit(lambda a, b: a @ b).lower(x, x).compile().as_text()
    seconds = timeline.cycles(timeline.read(text, Mesh([device], "x"))) / one.chip.hertz
    assert 0.85 < 2 * 4096**3 / seconds / (one.chip.flops / one.chip.devices) <= 1.02
    large = jax.ShapeDtypeStruct((1 << 20, 1 << 18), jnp.float32, sharding=place)
    with compiling(), pytest.raises(jax.errors.JaxRuntimeError) as error:
        jax.jit(lambda a: a + 1).lower(large).compile()
    found = compilation.explain(error.value)
    assert found.there * one.chip.devices == pytest.approx(one.chip.memory, rel=1e-3)
    assert found.used >= 4 << 38


def mesh_of(one, shape, order=None):
    """Devices in the order of their coordinates, or with axes in another order."""
    devices = sorted(topology.devices(one), key=lambda device: device.coords)
    places = np.array(devices).reshape(one.shape)
    places = places.transpose(order) if order else places
    return Mesh(places.reshape(shape), ("data", "fsdp"))


@needs_libtpu
@pytest.mark.parametrize(
    "name, shape, axes, links",
    [
        ("v5e:4x4", (4, 4), ("data",), 1),  # a line
        ("v5e:4x4", (4, 4), ("data", "fsdp"), 2),
        ("v5e:16x16", (16, 16), ("fsdp",), 2),  # a ring
        ("v5e:16x16", (256, 1), ("data",), 4),
        ("v5e:16x16", (32, 8), ("fsdp",), 1),  # half of a ring is a line
        ("v5e:8x16", (8, 16), ("data", "fsdp"), 3),
        ("v4:2x4x4", (32, 1), ("data",), 3),
        ("v4:4x4x4", (64, 1), ("data",), 6),
        ("v5e:1x1", (1, 1), ("data",), 1),
        ("v5e:16x16", (64, 4), ("data",), 2 + 2 / 4),  # four groups share the rings of one axis
    ],
)
def test_links_that_a_collective_goes_over(name, shape, axes, links):
    one = topology.find(name)
    found = topology.bandwidth(one, mesh_of(one, shape), "all-reduce", axes)
    assert found == links * one.chip.link


def busiest(one, mesh, axes, flows):
    """Of all links of a slice, one a direction, what the busiest carries: flows(group), (from, to, amount), go one
    axis after the other, the shorter way around a ring, or half each way."""
    along = [mesh.axis_names.index(axis) for axis in axes]
    groups = np.moveaxis(mesh.devices, along, range(len(along)))
    groups = groups.reshape(math.prod(groups.shape[: len(along)]), -1)
    loads = Counter()
    for group in groups.T:
        for a, b, amount in flows([device.coords for device in group]):
            place = list(a)
            for axis, (size, is_ring) in enumerate(zip(one.shape, one.rings, strict=True)):
                ahead = b[axis] - place[axis]
                ways = [ahead]
                if is_ring and abs(ahead) * 2 >= size:
                    around = ahead - size if ahead > 0 else ahead + size
                    ways = [around] if abs(around) < abs(ahead) else [ahead, around]
                for way in ways:
                    for step in range(abs(way)):
                        moved = (place[axis] + step * np.sign(way)) % size
                        link = *place[:axis], moved, *place[axis + 1 :], axis, np.sign(way)
                        loads[link] += amount / len(ways)
                place[axis] = b[axis]
    return max(loads.values())


def to_all(group):
    return [(a, b, 1 / len(group)) for a in group for b in group if a != b]


def to_the_next(group):
    return list(zip(group, group[1:], [1] * len(group), strict=False))


@needs_libtpu
@pytest.mark.parametrize(
    "name, shape, axes",
    [
        ("v5e:4x4", (4, 4), ("data",)),
        ("v5e:4x4", (4, 4), ("data", "fsdp")),
        ("v5e:16x16", (16, 16), ("fsdp",)),
        ("v5e:16x16", (16, 16), ("data", "fsdp")),
        ("v5e:16x16", (32, 8), ("fsdp",)),
        ("v5e:8x16", (8, 16), ("data", "fsdp")),
        ("v5e:8x8", (16, 4), ("fsdp",)),
    ],
)
def test_all_to_all_and_one_way(name, shape, axes):
    """Beside every message on its way: the seconds are those of the link that carries the most."""
    one = topology.find(name)
    mesh = mesh_of(one, shape)
    group = math.prod(mesh.shape[axis] for axis in axes)
    expected = busiest(one, mesh, axes, to_all) / one.chip.link
    found = (group - 1) / group / topology.bandwidth(one, mesh, "all-to-all", axes)
    assert found == pytest.approx(expected)
    if len(axes) == 1:
        expected = busiest(one, mesh, axes, to_the_next) / one.chip.link
        found = 1 / topology.bandwidth(one, mesh, "collective-permute", axes)
        assert found == pytest.approx(expected)


@needs_libtpu
@pytest.mark.parametrize("name", ["v5e:8x8", "v5e:16x16"])
def test_groups_that_share_links(name):
    """An axis of a slice of which a mesh makes two: its neighbours on the outer one are not neighbours in the slice."""
    one = topology.find(name)
    size = one.shape[0]
    mesh = Mesh(mesh_of(one, one.shape).devices.reshape(size, size // 2, 2), ("a", "data", "b"))
    expected = busiest(one, mesh, ("data",), to_all) / one.chip.link
    found = (1 - 2 / size) / topology.bandwidth(one, mesh, "all-to-all", ("data",))
    assert found == pytest.approx(expected)
    one_way = topology.bandwidth(one, mesh, "collective-permute", ("data",))
    assert one.chip.link / one_way == busiest(one, mesh, ("data",), to_the_next) == 2
