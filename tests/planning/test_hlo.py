"""Parsing compiled programs: small functions with known collectives, for CPU and TPU."""

import jax
import pytest
from kits.programs import collectives, compiled, mesh_on, save, saved
from kits.slices import needs_libtpu

from bert_jax.planning import hlo, timeline

# Each of 2 x 4 devices holds a shard of x: float32[128, 256].
PART = 128 * 256 * 4


def loops(x):
    """Runs five sums over `data`, and three over `tensor` after each of them."""

    def inner(x, _):
        return jax.lax.psum(x, "tensor") * 0.5, None

    def outer(x, _):
        x = jax.lax.psum(x, "data") * 0.5
        return jax.lax.scan(inner, x, length=3)[0], None

    return jax.lax.scan(outer, x, length=5)[0]


FUNCTIONS = {
    "all-reduce": lambda x: jax.lax.psum(x, "data"),
    "all-gather": lambda x: jax.lax.all_gather(x, "tensor", tiled=True),
    "reduce-scatter": lambda x: jax.lax.psum_scatter(x, "tensor", tiled=True),
    "all-to-all": lambda x: jax.lax.all_to_all(x, "tensor", 0, 1, tiled=True),
    "collective-permute": lambda x: jax.lax.ppermute(x, "data", [(0, 1), (1, 0)]),
    "loops": loops,
}
# {kind: (bytes of the full array, axes, devices in a group, bytes that each device sends in a ring)}
EXPECTED = {
    "all-reduce": (PART, ("data",), 2, PART),
    "all-gather": (4 * PART, ("tensor",), 4, 3 * PART),
    "reduce-scatter": (PART, ("tensor",), 4, 3 * PART // 4),
    "all-to-all": (PART, ("tensor",), 4, 3 * PART // 4),
    "collective-permute": (PART, ("data",), 2, PART),
}


def text_for(platform, name):
    return compiled(FUNCTIONS[name], mesh_on("cpu")).as_text() if platform == "cpu" else saved(name)


@pytest.mark.parametrize("platform", ["cpu", "tpu"])
@pytest.mark.parametrize("kind", EXPECTED)
def test_bytes_and_axes_of_each_kind_are_parsed(kind, platform):
    """On a CPU, an all-to-all has as many arrays as a group has devices."""
    text, mesh = text_for(platform, kind), mesh_on("cpu")
    found = [part for part, _ in collectives(text, mesh)]
    size, axes, group, sent = EXPECTED[kind]
    assert {(c.kind, c.array.dtype, c.axes, c.group) for c in found} == {(kind, "f32", axes, group)}
    assert sum(c.array.bytes for c in found) == size
    assert sum(c.sent for c in found) == sent
    assert timeline.sent(timeline.read(text, mesh)) == {(kind, axes): sent}


@pytest.mark.parametrize("platform", ["cpu", "tpu"])
def test_loops_multiply_bytes_by_trips(platform):
    events = timeline.read(text_for(platform, "loops"), mesh_on("cpu"))
    sent = {("data",): 5 * PART, ("tensor",): 15 * 2 * PART * 3 // 4}
    assert timeline.sent(events) == {("all-reduce", axes): count for axes, count in sent.items()}


@needs_libtpu
@pytest.mark.full
def test_the_saved_programs_are_reproduced():
    mesh = mesh_on("tpu")
    texts = {name: compiled(function, mesh).as_text() for name, function in FUNCTIONS.items()}
    for name, text in texts.items():
        assert timeline.read(text, mesh) == timeline.read(saved(name), mesh), name
    save(texts)


ODD_AND_EVEN = [[0, 2, 4, 6], [1, 3, 5, 7]]
HALVES = [[0, 1, 2, 3], [4, 5, 6, 7]]
MESH = "replica_groups=mesh['axis_0'=2,'axis_1'=4], device_ids=([4,2]T(1,0)) {'axis_1'}, x=1"


@pytest.mark.parametrize(
    "text, groups",
    [
        ("replica_groups={{0,2,4,6},{1,3,5,7}}, use_global_device_ids=true", ODD_AND_EVEN),
        ("replica_groups=[2,4]<=[4,2]T(1,0), use_global_device_ids=true", ODD_AND_EVEN),
        ("replica_groups=mesh['axis_0'=4,'axis_1'=2] {'axis_0'}, dimensions={0}", ODD_AND_EVEN),
        (MESH, ODD_AND_EVEN),
        ("replica_groups=[2,4]<=[8], dimensions={0}", HALVES),
        ("replica_groups=mesh['axis_0'=8] {'axis_0'}, channel_id=1", [list(range(8))]),
        ("replica_groups={}, to_apply=%add", [list(range(8))]),
        ("source_target_pairs={{0,0},{1,2},{2,1}}, channel_id=1", [[0, 0], [1, 2], [2, 1]]),
    ],
)
def test_groups_are_parsed_in_every_notation(text, groups):
    """Passes of XLA print groups in different notations."""
    assert hlo.groups(text, 8).tolist() == groups


def test_asynchronous_collectives_and_tuples_are_parsed():
    """On a GPU, the result of a start includes the operand; an all-reduce may have several arrays and types."""
    text = """
ENTRY %main (p: f32[8,4]) -> f32[32,4] {
  %s = (f32[8,4]{1,0}, f32[32,4]{1,0}) all-gather-start(%p), replica_groups=[2,4]<=[8], dimensions={0}
  %d = f32[32,4]{1,0} all-gather-done(%s)
  %r = f32[8,4]{1,0} all-reduce-start(%p), replica_groups=[2,4]<=[8], to_apply=%add
  ROOT %e = f32[8,4]{1,0} all-reduce-done(%r)
  %a = (bf16[]{:T(2)}, /*index=2*/pred[3]{0:T(8,128)S(1)}) all-reduce(%p, %q), replica_groups={}, to_apply=%add
}
"""
    arrays = [(c.kind, *c.array, c.array.bytes) for c, _ in collectives(text, mesh_on("cpu"))]
    assert arrays == [
        ("all-gather", "f32", (32, 4), 512),
        ("all-reduce", "f32", (8, 4), 128),
        ("all-reduce", "bf16", (), 2),
        ("all-reduce", "pred", (3,), 3),
    ]
