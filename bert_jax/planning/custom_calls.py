"""Estimates cycles of custom calls, such as Pallas kernels: the compiler has no estimate of them.

The lower bound of a call is its roofline: the larger of FLOPs / peak FLOPs of the chip and bytes / bandwidth of its
memory. Bytes are those of operands and results. FLOPs are those of the kernel's own cost estimate; splash attention has
none, so its products are counted here, those that its backward kernels compute again among them; other kernels have 0.
The instructions that libtpu 0.0.42 generates for the attention kernels take 1.2 to 2.2 times this bound for rows of 256
tokens or more (benchmarks/LOG.md). So the estimate of a call is LIKELY times its bound; LEAST and MOST times the bound
are the ends of the range that `plan` prints.
"""

import math
import re

from bert_jax.parallel.chips import CHIPS
from bert_jax.planning import hlo

LEAST, LIKELY, MOST = 1, 2, 3
TARGET = re.compile(r'custom_call_target="([^"]*)"')
FLOPS = re.compile(r'"cost_estimate":\{[^}]*"flops":"?(\d+)')
SPLASH = re.compile(r"splash_mha_(fwd|dq|dkv)")
# Products over pairs of tokens in splash's kernels.
PRODUCTS = {"fwd": 2, "dq": 3, "dkv": 4}
# Beginnings of the names of the compiler's own markers, which compute nothing.
FREE = ("AllocateBuffer", "AssumeGatherIndicesInBound", "AsyncCollective", "ConcatBitcast")
FREE += ("GatherScatterIndicesBitpacked", "PrepareAsyncCall")


def cycles(call: hlo.Instruction, mesh) -> int:
    """Estimates the cycles of a custom call on one device of the mesh: LIKELY times its bound, 0 for FREE calls."""
    if TARGET.search(call.text)[1].startswith(FREE):
        return 0
    device_kind = mesh.devices.flat[0].device_kind
    chip = next(chip for chip in CHIPS.values() if chip.device_kind == device_kind)
    text = call.text.partition("operand_layout_constraints=")[2].partition("}}")[0]
    operands, results = hlo.arrays(text), hlo.arrays(call.results)
    size = sum(array.bytes for array in operands + results)
    given, kernel = FLOPS.search(call.text), SPLASH.search(call.name)
    flops = int(given[1]) if given else splash_flops(kernel[1], operands, results) if kernel else 0
    seconds = max(flops / chip.flops, size / chip.bandwidth)
    return round(LIKELY * seconds * chip.devices * chip.hertz)


def splash_flops(kernel: str, operands: list[hlo.Array], results: list[hlo.Array]) -> int:
    """Returns the FLOPs of a kernel of splash attention, by the blocks that it visits.

    The first of four axes are the queries, [rows, heads, size, tokens]. The first operand has the shape [1, blocks of
    queries, square blocks of keys that each visits], or with the last two swapped. A backward kernel for all three
    gradients has one more product; it visits all pairs, and has parts of a gradient, with five axes.
    """
    rows, heads, size, length = next(array.shape for array in operands if len(array.shape) == 4)
    pairs, products = length**2, PRODUCTS[kernel] + 1
    if all(len(array.shape) < 5 for array in results):
        _, *blocks = operands[0].shape
        pairs, products = math.prod(blocks) * (length // max(blocks)) ** 2, PRODUCTS[kernel]
    return products * 2 * rows * heads * size * pairs
