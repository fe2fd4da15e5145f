"""Cycles of custom kernels, by arithmetic: the compiler says none.

The attention kernels go through rows, heads and blocks of tokens step by step. The instructions of a step were counted
in what libtpu makes of them (its final bundles, one a cycle; waiting would come on top): benchmarks/kernels.py counts
them again.
"""

import re

from bert_jax.models import attention_kernel
from bert_jax.models.attention import block_size

LIBTPU = "0.0.42"  # in whose programs they were counted
# Instructions of a step on v5e, bfloat16, heads of 64 (128 has as many): by tokens of a block.
SPLASH_STEPS = {
    "fwd": {128: 548, 256: 1036, 384: 1415, 512: 2111},
    "dkv": {128: 519, 256: 1079, 384: 1964, 512: 2857},
}
# The same of a step of attention_kernel.py, 128 lanes (two heads) of 512 tokens or of one row, by tokens of a row.
FUSED_STEPS = {
    "forward": {128: 1473, 256: 1776, 384: 1893, 512: 2732},
    "forward_dropout": {128: 1914, 256: 2716, 384: 2943, 512: 4727},
    "backward": {128: 3061, 256: 3529, 384: 3928, 512: 6109},
    "backward_dropout": {128: 3391, 256: 4521, 384: 4951, 512: 8149},
}
# Those of other chips, at blocks of 512, by those of v5e.
RELATIVE = {
    "splash": {"TPU v4": 1.39, "TPU v5": 1.02, "TPU v6 lite": 0.64},
    "fused": {"TPU v5": 1.03, "TPU v6 lite": 0.75},
}
FLOAT32 = 4.3  # its products, in six passes, by those of bfloat16
SPLASH = re.compile(r"splash_mha_(fwd|dkv)")
FUSED = re.compile(r"rows_(forward|backward)_kernel_(\d+)(_dropout)?")
ARRAY = re.compile(r"\b(bf16|f32)\[([\d,]+)\]")


def doubt(libtpu: str) -> str:
    """What is to be said where kernels were counted in programs of another version of libtpu than this, or ''."""
    if libtpu.split(".")[:3] == LIBTPU.split("."):
        return ""
    return (
        f"the instructions of attention kernels are those of libtpu {LIBTPU}, {libtpu} is installed:"
        " benchmarks/kernels.py counts them"
    )


def cycles(line: str, mesh) -> int:
    """Of an instruction that calls a kernel, on the devices of a mesh; 0 of any other, and of kernels that are not
    ours."""
    if 'custom_call_target="tpu_custom_call"' not in line:
        return 0
    queries = ARRAY.search(line.partition("operand_layout_constraints=")[2])
    splash, fused = SPLASH.search(line), FUSED.search(line)
    if not queries or not (splash or fused):
        return 0
    shape = [int(size) for size in queries[2].split(",")]
    relative = RELATIVE["splash" if splash else "fused"].get(mesh.devices.flat[0].device_kind, 1)
    count = of_splash(*splash.groups(), *shape) if splash else of_fused(*fused.groups(), *shape)
    return round(count * relative * (FLOAT32 if queries[1] == "f32" else 1))


def of_splash(kernel: str, rows: int, heads: int, _, length: int) -> int:
    block = block_size(length)
    return rows * heads * (length // block) ** 2 * SPLASH_STEPS[kernel][block]


def of_fused(kernel: str, size: str, dropout, rows: int, length: int, width: int) -> float:
    """Where fewer rows than usual are taken at once, as if each took its share of a step."""
    usual = max(1, attention_kernel.TOKENS // length)
    each = FUSED_STEPS[kernel + (dropout or "")][length] * 64 / int(size)
    return rows / usual * (width / attention_kernel.LANES) * each
