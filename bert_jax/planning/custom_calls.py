"""Estimates cycles of custom calls, such as Pallas kernels: the compiler has no estimate of them.

The lower bound of a call is its roofline: the larger of FLOPs / peak FLOPs of the chip and bytes / bandwidth of its
memory. Bytes are those of operands and results. FLOPs are those of the kernel's own cost estimate; splash attention has
none, so its products are counted (attention_splash.flops), also those that its backward kernels compute again; other
kernels have 0.
The instructions that libtpu 0.0.42 generates for the attention kernels take 1.2 to 2.2 times this bound for rows of 256
tokens or more (benchmarks/LOG.md). So the estimate of a call is FACTORS times its bound; `plan` prints the range.
"""

import re

from bert_jax.layers import attention_splash
from bert_jax.planning import hlo, roofline

FACTORS = roofline.Factors(least=1, likely=2, most=3)
FLOPS = re.compile(r'"cost_estimate":\{[^}]*"flops":"?(\d+)')
# Beginnings of the names of the compiler's own markers, which compute nothing.
FREE = (
    "AllocateBuffer",
    "AssumeGatherIndicesInBound",
    "AsyncCollective",
    "ConcatBitcast",
    "GatherScatterIndicesBitpacked",
    "PrepareAsyncCall",
)


def cycles(call: hlo.Instruction, mesh) -> int:
    """Estimates the cycles of a custom call on one device of the mesh; 0 for FREE calls."""
    if call.target.startswith(FREE):
        return 0
    layouts = call.text.partition("operand_layout_constraints=")[2].partition("}}")[0]
    operands = hlo.arrays(layouts)
    results = hlo.arrays(call.results)
    size = sum(array.bytes for array in operands + results)
    cost = FLOPS.search(call.text)
    if cost:
        flops = int(cost[1])
    else:
        operand_shapes = [array.shape for array in operands]
        result_shapes = [array.shape for array in results]
        flops = attention_splash.flops(call.name, operand_shapes, result_shapes)
    return roofline.cycles(roofline.find_chip(mesh), flops, size, FACTORS.likely)
