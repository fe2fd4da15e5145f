"""Cycles of custom kernels, by arithmetic: the compiler says none.

The attention kernels go through rows, heads and blocks of tokens step by step. The instructions of a step were counted
in what libtpu 0.0.42 makes of them (its final bundles, one a cycle; waiting would come on top).
"""

import re

from bert_jax.models.attention import block_size

# Instructions of a step on v5e, bfloat16, heads of 64 (128 has as many): by tokens of a block.
STEPS = {
    "fwd": {128: 548, 256: 1036, 384: 1415, 512: 2111},
    "dkv": {128: 519, 256: 1079, 384: 1964, 512: 2857},
}
# Those of other chips, at blocks of 512, by those of v5e.
RELATIVE = {"TPU v4": 1.39, "TPU v5": 1.02, "TPU v6 lite": 0.64}
FLOAT32 = 4.3  # its products, in six passes, by those of bfloat16
KERNEL = re.compile(r"splash_mha_(fwd|dkv)")
QUERIES = re.compile(r"\b(bf16|f32)\[(\d+),(\d+),(\d+),(\d+)\]")  # rows, heads, head size, length


def cycles(line: str, mesh) -> int:
    """Of an instruction that calls a kernel, on the devices of a mesh; 0 of any other, and of kernels that are not
    ours."""
    kernel, operands = KERNEL.search(line), line.partition("operand_layout_constraints=")[2]
    queries = QUERIES.search(operands)
    if 'custom_call_target="tpu_custom_call"' not in line or not kernel or not queries:
        return 0
    rows, heads, _, length = map(int, queries.groups()[1:])
    block = block_size(length)
    steps = rows * heads * (length // block) ** 2
    each = STEPS[kernel[1]][block] * RELATIVE.get(mesh.devices.flat[0].device_kind, 1)
    return round(steps * each * (FLOAT32 if queries[1] == "f32" else 1))
