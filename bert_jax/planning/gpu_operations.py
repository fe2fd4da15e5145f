"""Estimates cycles of the operations of a compiled GPU program: its compiler has no estimate of them.

An operation takes FACTORS times its roofline. FLOPs are those of its matrix products. Bytes are those of its operands
and results; of an array of which a fusion reads or writes slices alone, those of the slices.

The likely factor is fitted to the one step that was measured (benchmarks/README.md): BERT-base with 3 layers, 256 rows
of 128 tokens, attention by cuDNN without dropout, on an H100, without autotuning: 18.4 ms, by roofline 11.3. The ends
of the range are a guess.
"""

import math
import re
from collections import Counter
from collections.abc import Iterator

from bert_jax.planning import hlo, roofline
from bert_jax.planning.hlo import Array, Instruction

FACTORS = roofline.Factors(least=1.0, likely=1.6, most=2.5)
# They move nothing: names of parts of other arrays, and the bodies of loops and branches, which are counted themselves.
FREE = frozenset(
    "parameter constant get-tuple-element tuple bitcast after-all partition-id replica-id"
    " conditional while call".split()
)
SLICES = ("dynamic-slice", "gather", "slice")
# {opcode: position of the operand that is written}
UPDATES = {"dynamic-update-slice": 1, "scatter": 2}
CONTRACTED = re.compile(r'lhs_contracting_dim(?:ension)?s"?[:=][\[{]([^\]}]*)')
FUSED_ATTENTION = "__cudnn$fmha"
# A backward pass that writes the gradient of a mask keeps those of all scores, of all heads, in its workspace. Its size
# is known on a card alone; this is that of NVIDIA/cudnn-frontend, scaled_dot_product_flash_attention.h.
MASK_GRADIENT = "__cudnn$fmhaScaleBiasSoftmaxBackward"
# Products of the scores' size in attention: of queries and keys, of probabilities and values; in the backward pass
# those of the scores again, and of the gradients of probabilities, values, queries and keys.
FORWARD, BACKWARD = 2, 5


def events(
    op: Instruction, shapes: dict[str, list[Array]], computations: dict, mesh
) -> Iterator[list]:
    """Yields the event of an instruction, if it computes or moves something: ["roofline", cycles, FLOPs, bytes].

    shapes: {instruction of the same computation: its arrays}.
    """
    kind = op.opcode.removesuffix("-start").removesuffix("-done")
    if kind in FREE or kind in hlo.KINDS:
        return
    products = flops(op, shapes, computations)
    size = moved(op, shapes, computations)
    chip = roofline.find_chip(mesh)
    yield ["roofline", roofline.cycles(chip, products, size, FACTORS.likely), products, size]


def flops(op: Instruction, shapes: dict[str, list[Array]], computations: dict) -> int:
    """Returns the FLOPs of the matrix products of an instruction. shapes: as in `events`."""
    target = op.target
    if op.opcode == "fusion":
        body = computations[op.called("calls")]
        inside = hlo.shapes(body)
        return sum(flops(part, inside, computations) for part in body)
    if target.startswith(FUSED_ATTENTION):
        queries, keys = (shapes[name][0].shape for name in op.operands[:2])
        *rows, head_size = queries  # [B, L, H, K]
        products = BACKWARD if "Backward" in target else FORWARD
        return products * 2 * math.prod(rows) * keys[1] * head_size
    if op.opcode == "dot" or "matmul" in target or "gemm" in target:
        left = shapes[op.operands[0]][0].shape
        axes = hlo.numbers(CONTRACTED.search(op.text)[1])
        result = hlo.arrays(op.results)[0]
        return 2 * math.prod(result.shape) * math.prod(left[axis] for axis in axes)
    return 0


def moved(op: Instruction, shapes: dict[str, list[Array]], computations: dict) -> int:
    """Returns the bytes that an instruction reads and writes."""
    results = hlo.arrays(op.results)
    if op.target:
        results = [array for array in results if array.dtype != "s8"]  # the workspace of a library
    if op.opcode in SLICES:
        return 2 * count_bytes(results)
    operands = {name: count_bytes(shapes[name]) for name in op.operands if name in shapes}
    written = count_bytes(results)
    if op.opcode == "fusion":
        body = computations[op.called("calls")]
        operands |= sliced(op, body)
        update = updated(body)
        if update:
            written = update
    return sum(operands.values()) + written + 2 * workspace(op, shapes)


def workspace(op: Instruction, shapes: dict[str, list[Array]]) -> int:
    """Returns the bytes of a workspace that the compiled program lacks, see MASK_GRADIENT."""
    if op.target != MASK_GRADIENT:
        return 0
    (rows, length, heads, _), keys = (shapes[name][0].shape for name in op.operands[:2])
    return 2 * rows * heads * length * keys[1]


def largest_workspace(text: str) -> int:
    """Returns the bytes of the largest such workspace of a program."""
    if MASK_GRADIENT not in text:
        return 0
    sizes = []
    for body in hlo.computations(text)[0].values():
        shapes = hlo.shapes(body)
        sizes += [workspace(op, shapes) for op in body]
    return max(sizes)


def updated(body: list[Instruction]) -> int:
    """Returns the bytes that a fusion writes into a slice or into rows of its operand, 0 if it writes all results."""
    root = body[-1]
    target = next((op for op in body if root.operands[:1] == [op.name]), None)
    if root.opcode not in UPDATES or target is None or target.opcode != "parameter":
        return 0
    position = UPDATES[root.opcode]
    return count_bytes(hlo.shapes(body)[root.operands[position]])


def sliced(fusion: Instruction, body: list[Instruction]) -> dict[str, int]:
    """Returns {operand of which a fusion reads or writes slices alone: bytes that it reads of them}."""
    numbers = {}  # {parameter: its position}
    sizes = Counter()  # {parameter: bytes of its slices}
    read_otherwise = set()  # parameters that something else reads
    for part in body:
        if part.opcode == "parameter":
            numbers[part.name] = hlo.numbers(part.text)[0]
            continue
        first, *others = part.operands or [""]
        if part.opcode in SLICES:
            sizes[first] += count_bytes(hlo.arrays(part.results))
        elif part is body[-1] and updated(body):
            sizes[first] += updated(body)
        else:
            others.append(first)
        read_otherwise.update(others)
    operands = fusion.operands
    return {
        operands[numbers[name]]: count
        for name, count in sizes.items()
        if name in numbers and name not in read_otherwise
    }


def count_bytes(arrays: list[Array]) -> int:
    """Returns the bytes of arrays."""
    return sum(array.bytes for array in arrays)
