"""Parses the HLO text of a compiled program: computations, instructions, arrays, collectives; and its memory use.

The text is that of `compiled.as_text()`, on CPU, GPU and TPU. Sizes are per device. timeline.py builds a schedule from
it.
"""

import math
import re
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

KINDS = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute")
WITH_BITS = {"pred": "u8", "token": "u0"}  # for dtypes whose names do not have their bits

COMPUTATION = re.compile(r"^(ENTRY )?%?([\w.\-]+) \(.*\{$")
INSTRUCTION = re.compile(r"^\s+(?:ROOT )?%?([\w.\-]+) = (.*?) ([a-z][\w\-]*)\((.*)$")
ARRAY = re.compile(r"\b([a-z]+\d*[a-z0-9]*)\[([\d,]*)\]")
TARGET = re.compile(r'custom_call_target="([^"]*)"')


class Array(NamedTuple):
    """An array in the text of a program."""

    dtype: str  # in HLO's spelling: f32, bf16, s32, pred, token
    shape: tuple[int, ...]

    @property
    def bytes(self) -> int:
        bits = numbers(WITH_BITS.get(self.dtype, self.dtype))[0]
        return math.prod(self.shape) * bits // 8


class Instruction(NamedTuple):
    """One line of a computation."""

    name: str
    results: str  # the shape of an array, or of a tuple of them
    opcode: str
    text: str  # after the opening parenthesis: operands and attributes

    def called(self, attribute: str) -> str:
        """Returns the name of the computation in an attribute, such as `body` or `condition` of a loop."""
        return re.search(rf"\b{attribute}=%?([\w.\-]+)", self.text)[1]

    @property
    def operands(self) -> list[str]:
        """The names of the operands, where the text has these alone, as that of a GPU program."""
        return re.findall(r"%([\w.\-]+)", self.text.partition(")")[0])

    @property
    def target(self) -> str:
        """The function that a custom call calls; "" for other instructions."""
        match = TARGET.search(self.text)
        return match[1] if match else ""


class Collective(NamedTuple):
    """A collective operation of groups of devices on one array."""

    kind: str  # one of KINDS
    array: Array  # the full array: gathered, or before it is reduced and scattered
    axes: tuple[str, ...]  # mesh axes along which the devices of a group differ
    group: int  # devices in a group

    @property
    def sent(self) -> float:
        """Bytes that each device sends in a ring, which is the best algorithm for large arrays.

        Bytes forwarded between devices that are not neighbours are not counted; see `bandwidth` in tpus.py and gpus.py.
        """
        if self.kind == "collective-permute":
            return self.array.bytes
        rounds = 2 if self.kind == "all-reduce" else 1
        return rounds * self.array.bytes * (self.group - 1) / self.group


class Memory(NamedTuple):
    """Bytes on a device."""

    arguments: int
    temporaries: int
    program: int
    total: int  # the sum, and results that do not reuse the memory of donated arguments


def memory(compiled) -> Memory:
    """Returns the memory that a compiled program needs on each device."""
    sizes = compiled.memory_analysis()
    arguments = sizes.argument_size_in_bytes
    temporaries = sizes.temp_size_in_bytes
    program = sizes.generated_code_size_in_bytes
    results = sizes.output_size_in_bytes - sizes.alias_size_in_bytes
    return Memory(arguments, temporaries, program, arguments + temporaries + program + results)


def computations(text: str) -> tuple[dict[str, list[Instruction]], str]:
    """Returns the instructions of each computation, callees before callers, and the name of the entry computation."""
    parsed = {}
    entry = ""
    for line in text.splitlines():
        if head := COMPUTATION.match(line):
            name = head[2]
            parsed[name] = []
            if head[1]:
                entry = name
        elif instruction := INSTRUCTION.match(line):
            parsed[name].append(Instruction(*instruction.groups()))
    return parsed, entry


def arrays(text: str) -> list[Array]:
    """Returns the arrays in the text of a shape, without layouts."""
    shapes = re.sub(r"\{[^{}]*\}", "", text)
    return [Array(dtype, tuple(numbers(sizes))) for dtype, sizes in ARRAY.findall(shapes)]


def shapes(computation: list[Instruction]) -> dict[str, list[Array]]:
    """Returns {instruction: the arrays of its results}."""
    return {op.name: arrays(op.results) for op in computation}


def numbers(text: str) -> list[int]:
    """Returns the integers in a text."""
    return [int(digits) for digits in re.findall(r"\d+", text)]


def trips(loop: Instruction, computations: dict) -> int:
    """Returns the trip count of a loop: the compiler's, or the constant that its condition compares a counter with.

    Returns 1 if neither is in the text.
    """
    count = re.search(r'"known_trip_count":\{"n":"(\d+)"', loop.text)
    if count:
        return int(count[1])
    condition = computations[loop.called("condition")]
    constants = [line for line in condition if line.opcode == "constant"]
    bounds = [line.text for line in constants if line.results.startswith("s32[]")]
    if len(bounds) == 1 and any("direction=LT" in line.text for line in condition):
        return numbers(bounds[0])[0]
    return 1


def chain(instruction: Instruction) -> str:
    """Returns the name shared by all pieces of one collective, or "".

    On a TPU, XLA splits a collective into pieces to overlap it with compute.
    """
    ids = re.search(r'channel_id=(\d+),.*chain_id="(\d+)"', instruction.text)
    return "/".join(ids.groups()) if ids else ""


def collectives(instruction: Instruction, computation: str, mesh) -> Iterator[Collective]:
    """Yields the collectives of an instruction, or of the start of one: one for each array.

    Transfers between several TPU slices are not collectives in the text, so they are not counted.
    """
    kind = instruction.opcode.removesuffix("-start")
    if kind not in KINDS:
        return
    members = groups(instruction.text, mesh.size)
    size = members.shape[1]
    positions = np.array(np.unravel_index(members, mesh.devices.shape))  # [axis, group, device]
    varies = np.ptp(positions, axis=2).any(axis=1)
    axes = tuple(np.array(mesh.axis_names)[varies].tolist())
    if not axes:
        return
    if computation.startswith("all-reduce-scatter"):  # a fusion on TPUs
        kind = "reduce-scatter"
    for array in full_arrays(instruction, size):
        yield Collective(kind, array, axes, size)


def full_arrays(instruction: Instruction, group: int) -> list[Array]:
    """Returns the full arrays of a collective: gathered, or before they are scattered."""
    results = arrays(instruction.results)
    opcode = instruction.opcode
    if opcode.endswith("-start") and opcode != "all-reduce-start":
        # (operands, results, flags): the results follow the operands.
        results = [array for array in results if array != ("u32", ())]
        results = results[len(results) // 2 :]
    if opcode.startswith("reduce-scatter"):
        return [Array(dtype, (group, *shape)) for dtype, shape in results]
    return results


def groups(text: str, count: int) -> np.ndarray:
    """Returns the groups of a collective: int[groups, devices of each], as indices into the flat mesh.

    Reads all notations that passes of XLA print. The pairs of a permutation are groups of two.
    """
    if lists := re.search(r"(?:replica_groups|source_target_pairs)=\{(\{.*?\})\}", text):
        return np.array([numbers(group) for group in lists[1].split("},")])
    if tiles := re.search(r"replica_groups=\[(\d+),(\d+)\]<=(\S+)", text):
        return iota(tiles[3]).reshape(int(tiles[1]), int(tiles[2]))
    if axes := re.search(r"=mesh\[(.*?)\](?:, device_ids=\((\S+)\))? ?\{(.*?)\}", text):
        sizes = {name: int(size) for name, size in re.findall(r"'(\w+)'=(\d+)", axes[1])}
        devices = iota(axes[2] or f"[{count}]").reshape(*sizes.values())
        along = [list(sizes).index(name) for name in re.findall(r"\w+", axes[3])]
        devices = np.moveaxis(devices, along, range(-len(along), 0))
        return devices.reshape(-1, math.prod(devices.shape[-len(along) :]))
    return np.arange(count)[None]


def iota(text: str) -> np.ndarray:
    """Returns int[devices] of '[4,2]T(1,0)': 0, 1, ... in this shape, transposed and flattened."""
    shape, _, order = text.partition("T")
    sizes = numbers(shape)
    devices = np.arange(math.prod(sizes)).reshape(sizes)
    return devices.transpose(numbers(order) or range(devices.ndim)).reshape(-1)
