"""The text of a compiled program: its computations, instructions, arrays and collectives; and the memory it takes.

The text is that of `compiled.as_text()`, on CPU and TPU. Sizes are those on one device. timeline.py reads from it what
a device does, and for how long.
"""

import math
import re
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

KINDS = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute")

COMPUTATION = re.compile(r"^(ENTRY )?%?([\w.\-]+) \(.*\{$")
INSTRUCTION = re.compile(r"^\s+(?:ROOT )?%?([\w.\-]+) = (.*?) ([a-z][\w\-]*)\((.*)$")
ARRAY = re.compile(r"\b([a-z]+\d*[a-z0-9]*)\[([\d,]*)\]")


class Array(NamedTuple):
    dtype: str  # as the text has it: f32, bf16, s32, pred, token
    shape: tuple[int, ...]

    @property
    def bytes(self) -> int:
        bits = {"pred": [8], "token": [0]}.get(self.dtype) or numbers(self.dtype)
        return math.prod(self.shape) * bits[0] // 8


class Instruction(NamedTuple):
    name: str
    results: str  # the shape of an array, or of a tuple of them
    opcode: str
    text: str  # behind the opening parenthesis: operands and attributes

    def called(self, attribute: str) -> str:
        """The computation that an attribute names, as `body` and `condition` of a loop."""
        return re.search(rf"\b{attribute}=%?([\w.\-]+)", self.text)[1]


class Collective(NamedTuple):
    """What the devices of a group do together to one array."""

    kind: str  # one of KINDS
    array: Array  # in its largest form: what is gathered, reduced, or scattered
    axes: tuple[str, ...]  # of the mesh, along which the devices of a group differ
    group: int  # devices

    @property
    def sent(self) -> float:
        """Bytes that each device sends, by the best algorithm for large arrays: a ring. What others pass on to those
        that are not their neighbours is not counted; see topology.bandwidth."""
        if self.kind == "collective-permute":
            return self.array.bytes
        rounds = 2 if self.kind == "all-reduce" else 1
        return rounds * self.array.bytes * (self.group - 1) / self.group


class Memory(NamedTuple):
    """Bytes on a device."""

    arguments: int
    temporaries: int
    program: int
    total: int  # with results that do not lie where donated arguments lay


def memory(compiled) -> Memory:
    sizes = compiled.memory_analysis()
    parts = (
        sizes.argument_size_in_bytes,
        sizes.temp_size_in_bytes,
        sizes.generated_code_size_in_bytes,
    )
    results = sizes.output_size_in_bytes - sizes.alias_size_in_bytes
    return Memory(*parts, sum(parts) + results)


def computations(text: str) -> tuple[dict[str, list[Instruction]], str]:
    """The instructions of each computation of a program, what is called before what calls it, and the name of the first
    to run."""
    found, name, entry = {}, "", ""
    for line in text.splitlines():
        if head := COMPUTATION.match(line):
            name = head[2]
            found[name] = []
            entry = name if head[1] else entry
        elif instruction := INSTRUCTION.match(line):
            found[name].append(Instruction(*instruction.groups()))
    return found, entry


def arrays(text: str) -> list[Array]:
    """The arrays of the text of a shape, without layouts."""
    shapes = re.sub(r"\{[^{}]*\}", "", text)
    return [Array(dtype, tuple(numbers(sizes))) for dtype, sizes in ARRAY.findall(shapes)]


def numbers(text: str) -> list[int]:
    return [int(digits) for digits in re.findall(r"\d+", text)]


def trips(loop: Instruction, computations: dict) -> int:
    """How often a loop runs: as the compiler knows it, or by a condition that compares a counter with a constant; once
    where neither tells."""
    if known := re.search(r'"known_trip_count":\{"n":"(\d+)"', loop.text):
        return int(known[1])
    condition = computations[loop.called("condition")]
    bounds = [
        one.text for one in condition if (one.opcode, one.results[:5]) == ("constant", "s32[]")
    ]
    compares = any("direction=LT" in one.text for one in condition)
    return numbers(bounds[0])[0] if compares and len(bounds) == 1 else 1


def chain(instruction: Instruction) -> str:
    """The name that all pieces of one collective share: a TPU splits a collective to compute other things meanwhile."""
    found = re.search(r'channel_id=(\d+),.*chain_id="(\d+)"', instruction.text)
    return "/".join(found.groups()) if found else ""


def collectives(instruction: Instruction, computation: str, mesh) -> Iterator[Collective]:
    """Of an instruction that is a collective of devices of `mesh`, or the start of one: one for each array.

    What a program of several TPU slices sends from one to the other is not a collective in its text, and not here.
    """
    kind = instruction.opcode.removesuffix("-start")
    if kind not in KINDS:
        return
    members = groups(instruction.text, mesh.size)
    places = np.array(np.unravel_index(members, mesh.devices.shape))  # [axis, group, device]
    differs = np.ptp(places, axis=2).any(axis=1)
    axes = tuple(name for name, apart in zip(mesh.axis_names, differs, strict=True) if apart)
    if not axes:
        return
    size = members.shape[1]
    is_scatter = computation.startswith("all-reduce-scatter")  # fused on a TPU
    for array in whole(instruction, size):
        yield Collective("reduce-scatter" if is_scatter else kind, array, axes, size)


def whole(instruction: Instruction, group: int) -> list[Array]:
    """The arrays of a collective in their largest form."""
    results, opcode = arrays(instruction.results), instruction.opcode
    if opcode.endswith("-start") and opcode != "all-reduce-start":
        # (operands, results, flags): the results of these kinds are behind the operands.
        results = [array for array in results if array != ("u32", ())]
        results = results[len(results) // 2 :]
    if opcode.startswith("reduce-scatter"):
        return [Array(dtype, (group, *shape)) for dtype, shape in results]
    return results


def groups(text: str, count: int) -> np.ndarray:
    """int[groups, devices of each] of a collective, numbers of devices by their place in the flat mesh, in any of the
    notations that different passes of XLA print; pairs of a permutation are groups of two."""
    if lists := re.search(r"(?:replica_groups|source_target_pairs)=\{(\{.*?\})\}", text):
        return np.array([numbers(group) for group in lists[1].split("},")])
    if tiles := re.search(r"replica_groups=\[(\d+),(\d+)\]<=(\S+)", text):
        return iota(tiles[3]).reshape(int(tiles[1]), int(tiles[2]))
    if axes := re.search(r"=mesh\[(.*?)\](?:, device_ids=\((\S+)\))? ?\{(.*?)\}", text):
        sizes = dict(re.findall(r"'(\w+)'=(\d+)", axes[1]))
        devices = iota(axes[2] or f"[{count}]").reshape([int(size) for size in sizes.values()])
        along = [list(sizes).index(name) for name in re.findall(r"\w+", axes[3])]
        devices = np.moveaxis(devices, along, range(-len(along), 0))
        return devices.reshape(-1, math.prod(devices.shape[-len(along) :]))
    return np.arange(count)[None]


def iota(text: str) -> np.ndarray:
    """int[devices] of '[4,2]T(1,0)': the numbers from 0 on in this shape, transposed, and flat again."""
    shape, _, order = text.partition("T")
    devices = np.arange(math.prod(numbers(shape))).reshape(numbers(shape))
    return devices.transpose(numbers(order) or range(devices.ndim)).reshape(-1)
