"""Estimates of custom calls: the roofline computed by hand, and the compiler's markers, which are free."""

from types import SimpleNamespace

import numpy as np
import pytest

from bert_jax.parallel.chips import CHIPS
from bert_jax.planning import custom_calls, hlo

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
        expected = custom_calls.LIKELY * chip.devices * seconds * chip.hertz
        assert cycles(text) == pytest.approx(expected, rel=1e-3)
    assert not cycles(CALL.replace("TARGET", "ConcatBitcast"))
    assert not cycles(
        line.replace("COST", "")
        .replace("bf16[1000,1000]{1,0", "token[]{")
        .partition(", operand")[0]
    )
