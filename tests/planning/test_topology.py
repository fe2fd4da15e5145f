"""Slices by name, compared with those of libtpu; chips, compared with its compiler."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, SingleDeviceSharding
from kits.slices import compiling, needs_libtpu

from bert_jax.parallel import chips
from bert_jax.planning import timeline, topology, tpus
from bert_jax.runs import out_of_memory


@pytest.mark.parametrize(
    "name, expected", [("v5litepod-16", "v5e:4x4"), ("v3-8", "v3:2x2"), ("v4-128", "v4:4x4x4")]
)
def test_names_of_google_cloud_are_found(name, expected):
    assert topology.find(name).name == expected


def test_every_slice_is_found_by_its_names():
    for tpu in tpus.all_slices():
        assert topology.find(tpu.name) == topology.find(tpu.accelerator_type) == tpu


@needs_libtpu
@pytest.mark.parametrize("tpu", tpus.all_slices(), ids=lambda tpu: tpu.name)
def test_libtpu_knows_every_slice(tpu):
    devices = tpu.devices()
    assert len(devices) == tpu.chips * tpu.chip.devices
    assert len({tuple(device.coords) for device in devices}) == tpu.chips
    extents = 1 + np.max([device.coords for device in devices], axis=0)
    assert tuple(extents[: len(tpu.shape)]) == tpu.shape and math.prod(extents) == tpu.chips
    assert len({device.process_index for device in devices}) == max(1, tpu.chips // 4)
    assert chips.utilization(tpu.chip.flops * tpu.chips, devices) == pytest.approx(1)


@needs_libtpu
@pytest.mark.full
@pytest.mark.parametrize("kind", chips.CHIPS)
def test_the_compiler_agrees_about_a_chip(kind):
    """Cycles of a large matrix product match the published peak; an out-of-memory error has the chip's memory."""
    tpu = tpus.find(f"{kind}:{chips.CHIPS[kind].shapes[0]}")
    device = tpu.devices()[0]
    sharding = SingleDeviceSharding(device)
    x = jax.ShapeDtypeStruct((4096, 4096), jnp.bfloat16, sharding=sharding)
    with compiling():
        text = jax.jit(lambda a, b: a @ b).lower(x, x).compile().as_text()
    seconds = timeline.cycles(timeline.read(text, Mesh([device], "x"))) / tpu.chip.hertz
    assert 0.85 < 2 * 4096**3 / seconds / (tpu.chip.flops / tpu.chip.devices) <= 1.02
    large = jax.ShapeDtypeStruct((1 << 20, 1 << 18), jnp.float32, sharding=sharding)
    with compiling(), pytest.raises(jax.errors.JaxRuntimeError) as error:
        jax.jit(lambda a: a + 1).lower(large).compile()
    problem = out_of_memory.too_large(error.value)
    assert problem.available * tpu.chip.devices == pytest.approx(tpu.chip.memory, rel=1e-3)
    assert problem.used >= 4 << 38


@needs_libtpu
@pytest.mark.parametrize(
    "name, shape, axes, links",
    [
        ("v5e:4x4", (4, 4), ("data",), 1),  # a line
        ("v5e:4x4", (4, 4), ("data", "fsdp"), 2),
        ("v5e:16x16", (16, 16), ("fsdp",), 2),  # a ring
        ("v5e:16x16", (32, 8), ("fsdp",), 1),  # half of a ring is a line
        ("v4:4x4x4", (64, 1), ("data",), 6),
        ("v5e:16x16", (64, 4), ("data",), 2 + 2 / 4),  # four groups share the rings of one axis
    ],
)
def test_links_that_a_collective_uses(name, shape, axes, links):
    tpu = topology.find(name)
    devices = sorted(tpu.devices(), key=lambda device: device.coords)
    mesh = Mesh(np.array(devices).reshape(shape), ("data", "fsdp"))
    assert tpu.bandwidth(mesh, "all-reduce", axes) == links * tpu.chip.link
