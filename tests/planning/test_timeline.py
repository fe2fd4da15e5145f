"""Schedules read from programs, and how long they take: by hand, and beside the other reader of a program."""

import re

import jax
import numpy as np
import pytest
from jax.sharding import Mesh
from kits.programs import PROGRAM, compiled, mesh_on
from kits.slices import compiling, devices, needs_libtpu
from kits.small import VOCABULARY, small_config

from bert_jax import build
from bert_jax import config as configs
from bert_jax.planning import hlo, timeline

# In the notations of a TPU's program: a start and what waits for it, one in three pieces with a product between them,
# one that is waited for, one fused with what adds up, and a loop.
SCHEDULE = """
HloModule jit_step, is_scheduled=true

%fused_start (p: bf16[2,4]) -> (bf16[2,4], bf16[8,4]) {
  %g.1 = bf16[8,4]{1,0} all-gather(%p), channel_id=7, replica_groups=[1,4]<=[4], frontend_attributes={chain_id="3"}
  ROOT %c = (bf16[2,4]{1,0}, bf16[8,4]{1,0}) custom-call(%g.1), custom_call_target="AsyncCollectiveStart"
}

%both (p: bf16[2,4]) -> (bf16[8,4], bf16[8,4]) {
  %d = bf16[8,4]{1,0} convolution(%a, %b)
  %g.2 = bf16[8,4]{1,0} all-gather(%p), channel_id=7, replica_groups=[1,4]<=[4], frontend_attributes={chain_id="3"}
  ROOT %t = (bf16[8,4]{1,0}, bf16[8,4]{1,0}) tuple(%d, %g.2)
}

%fused_done (p: bf16[2,4]) -> bf16[8,4] {
  %g.3 = bf16[8,4]{1,0} all-gather(%p), channel_id=7, replica_groups=[1,4]<=[4], frontend_attributes={chain_id="3"}
  ROOT %c = bf16[8,4]{1,0} custom-call(%g.3), custom_call_target="AsyncCollectiveDone"
}

%all-reduce-scatter (p: f32[8,4]) -> f32[2,4] {
  %r = f32[8,4]{1,0} all-reduce(%p), channel_id=9, replica_groups=[1,4]<=[4], to_apply=%add
  ROOT %s = f32[2,4]{1,0} dynamic-slice(%r, %i, %z)
}

%condition (s: (s32[], f32[8])) -> pred[] {
  ROOT %l = pred[] compare(%i, %j), direction=LT
}

%body (s: (s32[], f32[8,4])) -> (s32[], f32[8,4]) {
  %r = f32[8,4]{1,0} all-reduce(%p), channel_id=1, replica_groups={}, to_apply=%add
  %f = f32[8,4]{1,0} fusion(%r), kind=kLoop, calls=%some, backend_config={"estimated_cycles":"50"}
}

ENTRY %main (p: f32[8,4]) -> f32[8,4] {
  %permute = (f32[8,4]{1,0}, f32[8,4]{1,0}) collective-permute-start(%p), source_target_pairs={{0,1},{1,2},{2,3},{3,0}}
  %f.1 = f32[8,4]{0} fusion(%x), kind=kLoop, calls=%some, backend_config={"estimated_cycles":"30"}
  %f.2 = f32[8,4]{0} fusion(%x), kind=kLoop, calls=%some, backend_config={"estimated_cycles":"40"}
  %copied = f32[8,4]{0} copy-done(%q)
  %sent = f32[8,4]{1,0} collective-permute-done(%permute)
  %a = (bf16[2,4]{1,0}, bf16[8,4]{1,0}) fusion(%x), kind=kCustom, calls=%fused_start
  %b = (bf16[8,4]{1,0}, bf16[8,4]{1,0}) fusion(%a), kind=kOutput, calls=%both, backend_config={"estimated_cycles":"20"}
  %c = bf16[8,4]{1,0} fusion(%b), kind=kCustom, calls=%fused_done
  %d = f32[2,4]{1,0} fusion(%y), kind=kCustom, calls=%all-reduce-scatter
  ROOT %w = (s32[], f32[8,4]) while(%t), condition=%condition, body=%body, backend_config={"known_trip_count":{"n":"5"}}
}
"""
EVENTS = [
    ["start", "permute", [["collective-permute", ["data"], 128]]],
    ["compute", 70],
    ["done", "permute"],
    ["start", "7/3", [["all-gather", ["data"], 48]]],
    ["compute", 20],
    ["done", "7/3"],
    ["send", [["reduce-scatter", ["data"], 96]]],
    ["loop", 5, [["send", [["all-reduce", ["data"], 192]]], ["compute", 50]]],
]


def test_a_schedule():
    mesh = Mesh(np.array(range(4)), ("data",))
    assert timeline.read(SCHEDULE, mesh) == EVENTS
    assert timeline.cycles(EVENTS) == 90 + 5 * 50


def plainly(sent):
    """A byte takes a second."""
    return sum(part[2] for part in sent)


def test_seconds_of_a_schedule():
    """70 of 128 are hidden, then 20 of 48, then none."""
    assert timeline.seconds(EVENTS, 1, plainly) == 128 + 48 + 96 + 5 * (192 + 50)


def test_what_is_sent_while_enough_is_computed_costs_nothing():
    events = [["start", "a", [["x", [], 10]]], ["start", "b", [["x", [], 20]]], ["compute", 25]]
    # One after the other: a is there after 10, b after 30.
    assert timeline.seconds([*events, ["done", "a"]], 1, plainly) == 30
    assert timeline.seconds([*events, ["done", "b"], ["compute", 1]], 1, plainly) == 31
    assert timeline.seconds([*events, ["compute", 25], ["done", "b"]], 1, plainly) == 50


def test_loops_and_conditions_count_as_the_cycles_do():
    mesh = Mesh(np.array(range(4)), ("data",))
    events = timeline.read(PROGRAM, mesh)
    assert events == [
        ["compute", 1000],
        ["loop", 7, [["compute", 100], ["loop", 3, [["compute", 10]]]]],
        ["compute", 5],
    ]
    expected = 1000 + 7 * (100 + 3 * 10) + 5  # of the branches the longest
    assert timeline.cycles(events) == timeline.seconds(events, 1, plainly) == expected


@needs_libtpu
def test_cycles_grow_with_the_work():
    mesh, counts = mesh_on("tpu"), []
    for trips in (10, 100):

        def function(x, trips=trips):
            return jax.lax.fori_loop(0, trips, lambda _, y: y @ y, x)

        text = compiled(function, mesh, (1024, 2048)).as_text()
        counts.append(timeline.cycles(timeline.read(text, mesh)))
    assert 5 < counts[1] / counts[0] < 11


def line_by_line(text):
    """Cycles of every line, as often as its computation runs, but those of the branches that are not the longest."""
    times, own, forks, name = hlo.runs(text), {}, [], ""
    for line in text.splitlines():
        if head := hlo.COMPUTATION.match(line):
            name = head[2]
        counts = re.findall(r'estimated_cycles":"(\d+)', line)
        own[name] = own.get(name, 0) + sum(times[name] * int(count) for count in counts)
        forks.append(hlo.branches(line))
    shorter = [sorted(own[branch] for branch in fork)[:-1] for fork in forks]
    return sum(own.values()) - sum(map(sum, shorter))


@needs_libtpu
@pytest.mark.parametrize("sizes", [dict(), pytest.param(dict(fsdp=4), marks=pytest.mark.slow)])
def test_every_collective_of_a_step_is_in_its_schedule(sizes):
    """Cycles and bytes by kind and axes are those that the readers of single lines find."""
    changes = [f"mesh.{axis}={size}" for axis, size in sizes.items()]
    config = small_config("dtype=bfloat16", "model.width=256", "train.micro_batches=2", *changes)
    phase = configs.phases(config)[0]
    mesh = build.make_mesh(config, [phase], devices("v5e:2x2"))
    with compiling():
        made = build.design(config, mesh, VOCABULARY)
        text = build.lower_train(config, made, phase).compile().as_text()
    events = timeline.read(text, mesh)
    assert timeline.cycles(events) == line_by_line(text) > 0
    expected = {}
    for one in hlo.collectives(text, mesh):
        expected[one.kind, one.axes] = expected.get((one.kind, one.axes), 0) + one.sent
    found = timeline.sent(events)
    assert found.keys() == expected.keys() and found
    assert all(found[key] == pytest.approx(expected[key], rel=1e-3) for key in found)
    started = {event[1] for event, _ in timeline.walk(events) if event[0] == "start"}
    assert started == {event[1] for event, _ in timeline.walk(events) if event[0] == "done"}
    assert bool(started) == ("fsdp" in sizes)
