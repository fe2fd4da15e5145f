"""Cycles of custom calls, such as Pallas kernels, to which the compiler gives none.

A call takes at least the larger of its FLOPs by the chip's peak and its bytes by the bandwidth of the chip's memory.
Bytes are those of its operands and results; FLOPs those of the kernel's own cost estimate, 0 where it has none. The
attention kernels were counted, by the instructions that libtpu 0.0.42 makes of them, at 1.2 to 2.2 times this limit
for rows of 256 tokens or more (benchmarks/LOG.md), so a call is taken to need LIKELY times its limit, and the range of
a step is from LEAST to MOST times.
"""

import re

from bert_jax.parallel.chips import CHIPS
from bert_jax.planning import hlo

LEAST, LIKELY, MOST = 1, 2, 3
TARGET = re.compile(r'custom_call_target="([^"]*)"')
FLOPS = re.compile(r'"cost_estimate":\{[^}]*"flops":"?(\d+)')
# The compiler's own marks, which compute nothing.
FREE = ("AllocateBuffer", "AssumeGatherIndicesInBound", "AsyncCollectiveDone")
FREE += ("AsyncCollectiveStart", "ConcatBitcast", "GatherScatterIndicesBitpacked")
FREE += ("PrepareAsyncCallDone", "PrepareAsyncCallStart")


def cycles(call: hlo.Instruction, mesh) -> int:
    """LIKELY times the limit of a custom call on a device of a mesh; 0 of FREE ones."""
    if TARGET.search(call.text)[1] in FREE:
        return 0
    kind = mesh.devices.flat[0].device_kind
    chip = next(chip for chip in CHIPS.values() if chip.device_kind == kind)
    operands = call.text.partition("operand_layout_constraints=")[2].partition("}}")[0]
    size = sum(array.bytes for text in (call.results, operands) for array in hlo.arrays(text))
    flops = FLOPS.search(call.text)
    seconds = max(int(flops[1]) / chip.flops if flops else 0, size / chip.bandwidth)
    return round(LIKELY * seconds * chip.devices * chip.hertz)
