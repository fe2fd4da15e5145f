"""Slices by name, against those that libtpu knows, and chips against what its compiler says of them."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, SingleDeviceSharding
from slices import compiling, needs_libtpu

from bert_jax import metrics, program, topology
from bert_jax.errors import BadInput
from bert_jax.planning import compiled


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
    monkeypatch.setattr(topology.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(BadInput, match=r"libtpu: .*bert_jax\[plan\]"):
        topology.devices(topology.find("v5e:2x2"))


@needs_libtpu
@pytest.mark.parametrize("one", topology.known(), ids=lambda one: one.name)
def test_libtpu_knows_every_slice(one):
    devices = topology.devices(one)
    assert len(devices) == one.chips * one.chip.devices
    assert len({tuple(device.coords) for device in devices}) == one.chips
    extents = 1 + np.max([device.coords for device in devices], axis=0)
    assert tuple(extents[: len(one.shape)]) == one.shape and math.prod(extents) == one.chips
    assert len({device.process_index for device in devices}) == max(1, one.chips // 4)
    assert metrics.utilization(one.chip.flops * one.chips, devices) == pytest.approx(1)


@needs_libtpu
@pytest.mark.parametrize("kind", topology.CHIPS)
def test_the_compiler_agrees_about_a_chip(kind):
    """Cycles of a large matrix product fit the published peak; what does not fit is told with the memory there is."""
    one = topology.make(kind, topology.CHIPS[kind].shapes[0])
    place = SingleDeviceSharding(topology.devices(one)[0])
    x = jax.ShapeDtypeStruct((4096, 4096), jnp.bfloat16, sharding=place)
    with compiling():
        text = jax.jit(lambda a, b: a @ b).lower(x, x).compile().as_text()
    seconds = program.cycles(text) / one.chip.hertz
    assert 0.85 < 2 * 4096**3 / seconds / (one.chip.flops / one.chip.devices) <= 1.02
    large = jax.ShapeDtypeStruct((1 << 20, 1 << 18), jnp.float32, sharding=place)
    with compiling(), pytest.raises(jax.errors.JaxRuntimeError) as error:
        jax.jit(lambda a: a + 1).lower(large).compile()
    found = compiled.explain(error.value)
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
    ],
)
def test_links_that_a_collective_goes_over(name, shape, axes, links):
    one = topology.find(name)
    found = topology.bandwidth(one, mesh_of(one, shape), axes)
    assert found == links * one.chip.link
