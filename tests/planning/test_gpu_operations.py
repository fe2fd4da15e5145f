"""Operations of a GPU program: their FLOPs and bytes by hand, and what XLA's own compiler for GPUs prints of them."""

from types import SimpleNamespace

import numpy as np
import pytest

from bert_jax.parallel.cards import CARDS
from bert_jax.planning import gpu_operations, hlo, timeline

CARD = CARDS["h100"]
# In XLA's notations: a fused product, one of cuBLAS with its workspace, cuDNN's attention, rows of a large table, a
# loop and a conditional.
PROGRAM = """
HloModule jit_step, is_scheduled=true

%fused_gather (param_0: f32[5000,8], param_1: s32[100]) -> f32[100,8] {
  %param_0 = f32[5000,8]{1,0} parameter(0)
  %param_1 = s32[100]{0} parameter(1)
  ROOT %gather.1 = f32[100,8]{1,0} gather(%param_0, %param_1), offset_dims={1}
}

%fused_update (param_0.1: f32[1000,8], param_1.1: f32[1,8], param_2.1: s32[]) -> f32[1000,8] {
  %param_0.1 = f32[1000,8]{1,0} parameter(0)
  %param_1.1 = f32[1,8]{1,0} parameter(1)
  %param_2.1 = s32[] parameter(2)
  %zero = s32[] constant(0)
  ROOT %update.1 = f32[1000,8]{1,0} dynamic-update-slice(%param_0.1, %param_1.1, %param_2.1, %zero)
}

%fused_scatter (param_0.2: f32[5000,8], param_1.2: s32[100,1], param_2.2: f32[100,8]) -> f32[5000,8] {
  %param_0.2 = f32[5000,8]{1,0} parameter(0)
  %param_1.2 = s32[100,1]{1,0} parameter(1)
  %param_2.2 = f32[100,8]{1,0} parameter(2)
  ROOT %scatter.1 = f32[5000,8]{1,0} scatter(%param_0.2, %param_1.2, %param_2.2), to_apply=%sum
}

%inner_gemm (parameter_0: bf16[64,32], parameter_1: bf16[32,16]) -> f32[64,16] {
  %parameter_0 = bf16[64,32]{1,0} parameter(0)
  %parameter_1 = bf16[32,16]{1,0} parameter(1)
  ROOT %dot.1 = f32[64,16]{1,0} dot(%parameter_0, %parameter_1), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}

%fused_gemm (p.0: bf16[64,32], p.1: bf16[32,16]) -> f32[64,16] {
  %p.0 = bf16[64,32]{1,0} parameter(0)
  %p.1 = bf16[32,16]{1,0} parameter(1)
  ROOT %nested = f32[64,16]{1,0} fusion(%p.0, %p.1), kind=kCustom, calls=%inner_gemm
}

%body (s: (s32[], f32[8])) -> (s32[], f32[8]) {
  %x = f32[8]{0} get-tuple-element(%s), index=1
  %added = f32[8]{0} add(%x, %x)
}

%condition (s: (s32[], f32[8])) -> pred[] {
  ROOT %l = pred[] compare(%i, %j), direction=LT
}

%skipped (p: f32[8]) -> f32[8] {
  ROOT %p.2 = f32[8]{0} parameter(0)
}

%updated (p: f32[8]) -> f32[8] {
  %p.3 = f32[8]{0} parameter(0)
  ROOT %negated = f32[8]{0} negate(%p.3)
}

ENTRY %main (table: f32[5000,8], ids: s32[100], a: bf16[64,32], b: bf16[32,16], q: bf16[2,6,3,8]) -> f32[8] {
  %table = f32[5000,8]{1,0} parameter(0)
  %ids = s32[100]{0} parameter(1)
  %a = bf16[64,32]{1,0} parameter(2)
  %b = bf16[32,16]{1,0} parameter(3)
  %q = bf16[2,6,3,8]{3,2,1,0} parameter(4)
  %rows = f32[100,8]{1,0} fusion(%table, %ids), kind=kLoop, calls=%fused_gather
  %row = f32[1,8]{1,0} parameter(5)
  %position = s32[] parameter(6)
  %cache = f32[1000,8]{1,0} parameter(7)
  %written = f32[1000,8]{1,0} fusion(%cache, %row, %position), kind=kLoop, calls=%fused_update
  %places = s32[100,1]{1,0} parameter(8)
  %summed = f32[5000,8]{1,0} fusion(%table, %places, %rows), kind=kInput, calls=%fused_scatter
  %product = f32[64,16]{1,0} fusion(%a, %b), kind=kCustom, calls=%fused_gemm
  %cublas = (f32[64,16]{1,0}, s8[4194304]{0}) custom-call(%a, %b), custom_call_target="__cublas$lt$matmul", AXES
  %result = f32[64,16]{1,0} get-tuple-element(%cublas), index=0
  %mixed = (bf16[2,6,3,8]{3,2,1,0}, s8[0]{0}) custom-call(%q, %q, %q), custom_call_target="__cudnn$fmhaSoftmax"
  %gradients = (bf16[2,6,3,8]{3,2,1,0}) custom-call(%q, %q, %q), custom_call_target="__cudnn$fmhaSoftmaxBackward"
  %masked = (bf16[2,6,3,8]{3,2,1,0}) custom-call(%q, %q, %q), custom_call_target="__cudnn$fmhaScaleBiasSoftmaxBackward"
  %w = (s32[], f32[8]) while(%t), condition=%condition, body=%body, backend_config={"known_trip_count":{"n":"5"}}
  ROOT %r = f32[8]{0} conditional(%k, %p, %p), branch_computations={%skipped, %updated}
}
""".replace(
    "AXES", 'backend_config={"lhs_contracting_dimensions":["1"],"rhs_contracting_dimensions":["0"]}'
)
PRODUCT = 2 * 64 * 32 * 16
FACTORS = 2 * (64 * 32 + 32 * 16)  # bytes
HEADS = 2 * 6 * 3 * 8  # elements of the queries
SCORES = 2 * 2 * 3 * 6 * 6  # bytes of the workspace of the gradient of a mask
# {instruction: FLOPs and bytes}
EXPECTED = {
    "rows": (0, 4 * (2 * 100 * 8 + 100)),
    "written": (0, 4 * (3 * 8 + 1)),
    "summed": (0, 4 * (3 * 100 * 8 + 100)),
    "product": (PRODUCT, FACTORS + 4 * 64 * 16),
    "cublas": (PRODUCT, FACTORS + 4 * 64 * 16),
    "mixed": (2 * 2 * HEADS * 6, 2 * 2 * HEADS),
    "gradients": (5 * 2 * HEADS * 6, 2 * 2 * HEADS),
    "masked": (5 * 2 * HEADS * 6, 2 * 2 * HEADS + 2 * SCORES),
}


def mesh(kind="h100"):
    device = SimpleNamespace(platform="gpu", device_kind=CARDS[kind].device_kind)
    return SimpleNamespace(devices=np.array([device]), size=1, axis_names=("data",))


@pytest.mark.parametrize("name", EXPECTED)
def test_flops_and_bytes_equal_a_calculation_by_hand(name):
    computations, entry = hlo.computations(PROGRAM)
    shapes = hlo.shapes(computations[entry])
    [op] = [op for op in computations[entry] if op.name == name]
    assert gpu_operations.flops(op, shapes, computations) == EXPECTED[name][0]
    assert gpu_operations.moved(op, shapes, computations) == EXPECTED[name][1]


def test_a_program_needs_the_largest_workspace_of_a_masks_gradient():
    assert gpu_operations.largest_workspace(PROGRAM) == SCORES
    assert gpu_operations.largest_workspace(PROGRAM.replace("ScaleBias", "")) == 0


def test_the_schedule_has_loops_and_the_longest_branch(monkeypatch):
    """With a peak and a bandwidth of 1 the cycles of an operation are its FLOPs, or its bytes where these are more."""
    card = CARD._replace(flops=1, bandwidth=1, hertz=1)
    monkeypatch.setattr(gpu_operations.roofline, "find_chip", lambda mesh: card)
    monkeypatch.setattr(gpu_operations, "FACTORS", gpu_operations.FACTORS._replace(likely=1))
    events = timeline.read(PROGRAM, mesh())
    added = ["roofline", 2 * 8 * 4, 0, 2 * 8 * 4]
    largest = [["roofline", max(numbers), *numbers] for numbers in EXPECTED.values()]
    assert events == [*largest, ["loop", 5, [added]], added]


def test_an_operation_takes_a_multiple_of_its_roofline():
    events = timeline.read(PROGRAM, mesh())
    likely = gpu_operations.FACTORS.likely
    _, size = EXPECTED["rows"]
    assert events[0][1] == pytest.approx(likely * size / CARD.bandwidth * CARD.hertz, abs=1)
