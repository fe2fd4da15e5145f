"""Schedules read from programs, and the seconds that they and custom calls take, checked by hand."""

from types import SimpleNamespace

import numpy as np
import pytest

from bert_jax.parallel.chips import CHIPS
from bert_jax.planning import custom_calls, hlo, timeline

# A TPU program in its notations: an asynchronous collective, one in three pieces around a matrix product, a blocking
# one, one fused with its reduction, a loop around another one, and a conditional.
SCHEDULE = """
HloModule jit_step, is_scheduled=true

%fused_start (p: bf16[2,4]) -> (bf16[2,4], bf16[8,4]) {
  %g.1 = bf16[8,4]{1,0} all-gather(%p), channel_id=7, ALL, frontend_attributes={chain_id="3"}
  ROOT %c = (bf16[2,4]{1,0}, bf16[8,4]{1,0}) custom-call(%g.1), custom_call_target="AsyncCollectiveStart"
}

%both (p: bf16[2,4]) -> (bf16[8,4], bf16[8,4]) {
  %d = bf16[8,4]{1,0} convolution(%a, %b)
  %g.2 = bf16[8,4]{1,0} all-gather(%p), channel_id=7, ALL, frontend_attributes={chain_id="3"}
  ROOT %t = (bf16[8,4]{1,0}, bf16[8,4]{1,0}) tuple(%d, %g.2)
}

%fused_done (p: bf16[2,4]) -> bf16[8,4] {
  %g.3 = bf16[8,4]{1,0} all-gather(%p), channel_id=7, ALL, frontend_attributes={chain_id="3"}
  ROOT %c = bf16[8,4]{1,0} custom-call(%g.3), custom_call_target="AsyncCollectiveDone"
}

%all-reduce-scatter (p: f32[8,4]) -> f32[2,4] {
  %r = f32[8,4]{1,0} all-reduce(%p), channel_id=9, replica_groups=[1,4]<=[4], to_apply=%add
  ROOT %s = f32[2,4]{1,0} dynamic-slice(%r, %i, %z)
}

%some (p: f32[8,4]) -> f32[8,4] {
  ROOT %a = f32[8,4]{0} add(%p, %p)
}

%inner_condition (s: (s32[], f32[8])) -> pred[] {
  %c = s32[]{:T(128)} constant(3)
  ROOT %l = pred[]{:T(512)} compare(%i, %c), direction=LT
}

%inner (s: (s32[], f32[8])) -> (s32[], f32[8]) {
  %f = f32[8]{0} fusion(%x), calls=%some, jvp, backend_config={"estimated_cycles":"10"}
}

%short (p: f32[8]) -> f32[8] {
  %f = f32[8]{0} fusion(%x), calls=%some, jvp, backend_config={"estimated_cycles":"4"}
}

%long (p: f32[8]) -> f32[8] {
  %f = f32[8]{0} fusion(%x), calls=%some, jvp, backend_config={"estimated_cycles":"5"}
}

%condition (s: (s32[], f32[8])) -> pred[] {
  ROOT %l = pred[] compare(%i, %j), direction=LT
}

%body (s: (s32[], f32[8,4])) -> (s32[], f32[8,4]) {
  %r = f32[8,4]{1,0} all-reduce(%p), channel_id=1, replica_groups={}, to_apply=%add
  %f = f32[8,4]{1,0} fusion(%r), calls=%some, jvp, backend_config={"estimated_cycles":"50"}
  %w = (s32[], f32[8]) while(%t), condition=%inner_condition, body=%inner
}

ENTRY %main (p: f32[8,4]) -> f32[8,4] {
  %permute = (f32[8,4]{1,0}, f32[8,4]{1,0}) collective-permute-start(%p), source_target_pairs={{0,1},{1,2},{2,3},{3,0}}
  %f.1 = f32[8,4]{0} fusion(%x), calls=%some, jvp, backend_config={"estimated_cycles":"30"}
  %f.2 = f32[8,4]{0} fusion(%x), calls=%some, jvp, backend_config={"estimated_cycles":"40"}
  %f.3 = f32[8,4]{0} fusion(%x), calls=%some, backend_config={"estimated_cycles":"6"}
  %f.4 = f32[8,4]{0} fusion(%x), calls=%some, backend_config={"estimated_cycles":"9223372036854775807"}
  %copied = f32[8,4]{0} copy-done(%q)
  %sent = f32[8,4]{1,0} collective-permute-done(%permute)
  %a = (bf16[2,4]{1,0}, bf16[8,4]{1,0}) fusion(%x), kind=kCustom, calls=%fused_start
  %b = (bf16[8,4]{1,0}, bf16[8,4]{1,0}) fusion(%a), calls=%both, backend_config={"estimated_cycles":"20"}
  %c = bf16[8,4]{1,0} fusion(%b), kind=kCustom, calls=%fused_done
  %d = f32[2,4]{1,0} fusion(%y), kind=kCustom, calls=%all-reduce-scatter
  %w = (s32[], f32[8,4]) while(%t), condition=%condition, body=%body, backend_config={"known_trip_count":{"n":"5"}}
  ROOT %r = f32[8]{0} conditional(%k, %p, %p), branch_computations={%short, %long}
}
""".replace(", jvp,", ', metadata={op_name="jvp(x)"},').replace("ALL", "replica_groups=[1,4]<=[4]")
INNER = ["loop", 3, [["compute", 10]]]
EVENTS = [
    ["start", "permute", [["collective-permute", ["data"], 128]]],
    ["compute", 30],
    ["compute", 40],
    ["update", 6],
    ["done", "permute"],
    ["start", "7/3", [["all-gather", ["data"], 48]]],
    ["update", 20],
    ["done", "7/3"],
    ["send", [["reduce-scatter", ["data"], 96]]],
    ["loop", 5, [["send", [["all-reduce", ["data"], 192]]], ["compute", 50], INNER]],
    ["compute", 5],
]


DEVICES = np.array([SimpleNamespace(platform="tpu")] * 4)
FOUR = SimpleNamespace(devices=DEVICES, size=4, axis_names=("data",))


def test_a_tpu_schedule_is_parsed():
    assert timeline.read(SCHEDULE, FOUR) == EVENTS
    assert timeline.cycles(EVENTS) == 96 + 5 * (50 + 3 * 10) + 5


def one_byte_a_second(kind, axes, size):
    return size


def test_asynchronous_transfers_overlap_with_compute():
    """76 of 128 seconds overlap, then 20 of 48, then none. Transfers that start together run one after the other."""
    expected = 128 + 48 + 96 + 5 * (192 + 50 + 3 * 10) + 5
    assert timeline.seconds(EVENTS, 1, one_byte_a_second) == expected
    events = [["start", "a", [["x", [], 10]]], ["start", "b", [["x", [], 20]]], ["compute", 25]]
    for rest, seconds in (
        ([["done", "a"]], 30),  # b is done after 10 + 20
        ([["done", "b"], ["compute", 1]], 31),
        ([["compute", 25], ["done", "b"]], 50),
    ):
        assert timeline.seconds([*events, *rest], 1, one_byte_a_second) == seconds


# --- Custom calls ---------------------------------------------------------------------------------


# 6 MB by its operands and results.
CALL = """\
  %a.1 = (bf16[1000,1000]{1,0:T(8,128)(2,1)S(1)}) custom-call(%x, %y), custom_call_target="TARGET", \
operand_layout_constraints={f32[1000,500]{1,0}, bf16[2,500,1000]{2,1,0}}, metadata={op_name="a"}, \
backend_config={"custom_call_config":{COST"needs_layout_passes":true}}"""
COST = '"cost_estimate":{"transcendentals":"7","flops":"1000000000000","bytes_accessed":"8"},'


@pytest.mark.parametrize("kind", ["v3", "v5e"])  # two devices a chip, and one
def test_the_larger_of_flops_and_bytes_counts(kind):
    chip = CHIPS[kind]
    mesh = SimpleNamespace(devices=np.array([SimpleNamespace(device_kind=chip.device_kind)]))
    line = CALL.replace("TARGET", "foreign")

    def cycles(text):
        ((one,),) = hlo.computations(f"%main () -> f32[] {{\n{text}\n}}")[0].values()
        return custom_calls.cycles(one, mesh)

    for text, seconds in (
        (line.replace("COST", ""), 6e6 / chip.bandwidth),
        (line.replace("COST", COST), 1e12 / chip.flops),
        (line.replace("COST", COST.replace("10000", "")), 6e6 / chip.bandwidth),
    ):
        expected = custom_calls.FACTORS.likely * chip.devices * seconds * chip.hertz
        assert cycles(text) == pytest.approx(expected, rel=1e-3)
    assert not cycles(CALL.replace("TARGET", "ConcatBitcast"))
    token = line.replace("COST", "").replace("bf16[1000,1000]{1,0", "token[]{")
    assert not cycles(token.partition(", operand")[0])
