"""What a compiled program does, read from its text: collectives, arrays, memory. planning/timeline.py reads its cycles.

The text is that of `compiled.as_text()`, on CPU and TPU. Sizes are those on one device.
"""

import math
import re
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

KINDS = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute")

COMPUTATION = re.compile(r"^(ENTRY )?%?([\w.\-]+) \(.*\{$")
INSTRUCTION = re.compile(r"^\s+(?:ROOT )?%?[\w.\-]+ = (.*?) ([a-z][\w\-]*)\((.*)$")
ARRAY = re.compile(r"\b([a-z]+\d*[a-z0-9]*)\[([\d,]*)\]")
CALLED = re.compile(r"\b(body|condition|calls|to_apply)=%?([\w.\-]+)")
BRANCHES = re.compile(r"branch_computations=\{([^}]*)\}")


class Array(NamedTuple):
    dtype: str  # as the text has it: f32, bf16, s32, pred
    shape: tuple[int, ...]

    @property
    def bytes(self) -> int:
        bits = 8 if self.dtype == "pred" else int(re.search(r"\d+", self.dtype)[0])
        return math.prod(self.shape) * bits // 8


class Instruction(NamedTuple):
    opcode: str
    results: list[Array]  # more than one where it makes a tuple
    computation: str
    text: str  # behind the opening parenthesis


class Collective(NamedTuple):
    """What the devices of a group do together to one array."""

    kind: str  # one of KINDS
    dtype: str
    shape: tuple[int, ...]  # of the largest form: what is gathered, reduced, or scattered
    bytes: int  # of that form
    axes: tuple[str, ...]  # of the mesh, along which the devices of a group differ
    group: int  # devices
    times: int  # a run of the program, by the trips of the loops around it
    name: str  # of the operation in the source, as a path

    @property
    def sent(self) -> float:
        """Bytes that each device sends in one run of the program, by the best algorithm for large arrays: a ring. What
        others pass on to those that are not their neighbours is not counted; see topology.bandwidth."""
        factor = {"all-reduce": 2, "collective-permute": self.group / max(self.group - 1, 1)}
        share = (self.group - 1) / self.group
        return self.times * self.bytes * share * factor.get(self.kind, 1)


class Memory(NamedTuple):
    """Bytes on a device."""

    arguments: int
    outputs: int
    shared: int  # of the outputs, what lies where donated arguments lay
    temporaries: int
    code: int

    @property
    def total(self) -> int:
        return self.arguments + self.outputs - self.shared + self.temporaries + self.code


def memory(compiled) -> Memory:
    sizes = compiled.memory_analysis()
    return Memory(
        sizes.argument_size_in_bytes,
        sizes.output_size_in_bytes,
        sizes.alias_size_in_bytes,
        sizes.temp_size_in_bytes,
        sizes.generated_code_size_in_bytes,
    )


def arrays(text: str) -> list[Array]:
    """The text of a shape, an array's or a tuple's, without layouts."""
    shapes = re.sub(r"\{[^{}]*\}", "", text)
    return [
        Array(dtype, tuple(int(size) for size in sizes.split(",") if size))
        for dtype, sizes in ARRAY.findall(shapes)
    ]


def instructions(text: str) -> Iterator[Instruction]:
    computation = ""
    for line in text.splitlines():
        if head := COMPUTATION.match(line):
            computation = head[2]
        elif found := parse(line, computation):
            yield found


def parse(line: str, computation: str = "") -> Instruction | None:
    found = INSTRUCTION.match(line)
    return found and Instruction(found[2], arrays(found[1]), computation, found[3])


def collectives(text: str, mesh) -> list[Collective]:
    """Every collective of a program for the devices of `mesh`, one for each array that takes part.

    What a program of several TPU slices sends from one to the other is not a collective in its text, and not here.
    """
    found, seen = [], set()
    times = runs(text)
    for instruction in instructions(text):
        # A TPU computes other things while it gathers: the pieces that do both repeat the collective, with its chain.
        link = chain(instruction)
        if link not in seen:
            found += exchange(instruction, mesh, times[instruction.computation])
        seen.update([link] if link else [])
    return found


def chain(instruction: Instruction) -> tuple[str, str] | None:
    """What all pieces of one collective share, where a TPU makes several of it."""
    found = re.search(r'channel_id=(\d+),.*chain_id="(\d+)"', instruction.text)
    return found and found.groups()


def exchange(instruction: Instruction, mesh, times: int = 1) -> list[Collective]:
    """What an instruction sends, if it is a collective, or the start of one, of more than one device."""
    kind = instruction.opcode.removesuffix("-start")
    if kind not in KINDS:
        return []
    groups = devices(instruction.text, mesh.size)
    group = max(map(len, groups))
    if group == 1:
        return []
    if instruction.computation.startswith("all-reduce-scatter"):  # fused on a TPU
        kind = "reduce-scatter"
    name = re.search(r'op_name="([^"]*)"', instruction.text)
    where = spanned(groups, mesh), group, times, name[1] if name else ""
    return [Collective(kind, *array, array.bytes, *where) for array in whole(instruction, group)]


def whole(instruction: Instruction, group: int) -> list[Array]:
    """The arrays of a collective in their largest form."""
    results = instruction.results
    if instruction.opcode.endswith("-start") and instruction.opcode != "all-reduce-start":
        # (operands, results, flags): the results of these kinds are behind the operands.
        results = [array for array in results if array != ("u32", ())]
        results = results[len(results) // 2 :]
    if instruction.opcode.startswith("reduce-scatter"):
        return [Array(dtype, (group, *shape)) for dtype, shape in results]
    if instruction.opcode == "all-to-all" and len(results) == group:
        return [Array(results[0].dtype, (group, *results[0].shape))]
    return results


def devices(text: str, count: int) -> list[list[int]]:
    """Groups of numbers of devices, by their place in the flat mesh, in any of the notations of a collective."""
    if pairs := re.search(r"source_target_pairs=\{(.*?)\}\}", text):
        numbers = [list(map(int, re.findall(r"\d+", pair))) for pair in pairs[1].split("},")]
        return [[a, b] for a, b in numbers if a != b] or [[0]]
    if axes := re.search(
        r"replica_groups=mesh\[([^\]]*)\](?:, device_ids=\((\S+)\))? ?\{([^}]*)\}", text
    ):
        sizes = {name: int(size) for name, size in re.findall(r"'(\w+)'=(\d+)", axes[1])}
        numbers = iota(axes[2], count).reshape(tuple(sizes.values()))
        along = [list(sizes).index(name) for name in re.findall(r"'(\w+)'", axes[3])]
        last = range(numbers.ndim - len(along), numbers.ndim)
        size = math.prod(numbers.shape[axis] for axis in along)
        return np.moveaxis(numbers, along, last).reshape(-1, size).tolist()
    if lists := re.search(r"replica_groups=\[(\d+),(\d+)\]<=(\S+?),? ", text + " "):
        return iota(lists[3], count).reshape(int(lists[1]), int(lists[2])).tolist()
    lists = re.search(r"replica_groups=\{((?:\{[\d,]*\},?)*)\}", text)
    groups = re.findall(r"\{([\d,]+)\}", lists[1]) if lists else []
    return [list(map(int, group.split(","))) for group in groups] or [list(range(count))]


def iota(text: str | None, count: int) -> np.ndarray:
    """int[count] of '[4,2]T(1,0)': the numbers from 0 on in this shape, transposed, and flat again."""
    numbers = np.arange(count)
    if text:
        shape, _, order = text.partition("T")
        numbers = numbers.reshape([int(size) for size in re.findall(r"\d+", shape)])
        if order:
            numbers = numbers.transpose([int(axis) for axis in re.findall(r"\d+", order)])
    return numbers.reshape(-1)


def spanned(groups: list[list[int]], mesh) -> tuple[str, ...]:
    """The axes of the mesh along which devices of one group differ."""
    places = [np.unravel_index(group, mesh.devices.shape) for group in groups]
    return tuple(
        name
        for axis, name in enumerate(mesh.axis_names)
        if any(np.ptp(place[axis]) > 0 for place in places)
    )


def computations(text: str) -> tuple[dict[str, list[str]], str]:
    """The lines of each computation of a program, what is called before what calls it, and the name of the first to
    run."""
    lines, name, entry = {}, "", ""
    for line in text.splitlines():
        if head := COMPUTATION.match(line):
            name = head[2]
            lines[name] = []
            entry = name if head[1] else entry
        elif name:
            lines[name].append(line)
    return lines, entry


def calls(line: str, lines: dict) -> Iterator[tuple[str, int]]:
    """(computation, times) of those that an instruction runs, but for branches of a condition."""
    for how, other in CALLED.findall(line):
        yield other, trips(line, lines) if how in ("body", "condition") else 1


def branches(line: str) -> list[str]:
    found = BRANCHES.search(line)
    return [name.strip(" %") for name in found[1].split(",")] if found else []


def runs(text: str) -> dict[str, int]:
    """How often a run of the program runs each computation. A loop whose trips the text does not tell counts once,
    every branch of a condition as taken."""
    lines, entry = computations(text)
    times = dict.fromkeys(lines, 0) | {entry: 1}
    for name in reversed(lines):
        for line in lines[name]:
            for other, trip in [*calls(line, lines), *((branch, 1) for branch in branches(line))]:
                times[other] = times.get(other, 0) + times[name] * trip
    return times


def trips(loop: str, lines: dict) -> int:
    """How often a loop runs: as the compiler knows it, or by a condition that compares a counter with a constant."""
    if known := re.search(r'"known_trip_count":\{"n":"(\d+)"', loop):
        return int(known[1])
    condition = lines[re.search(r"condition=%?([\w.\-]+)", loop)[1]]
    bounds = [re.search(r"= s32\[\]\S* constant\((\d+)\)", line) for line in condition]
    bounds = [int(bound[1]) for bound in bounds if bound]
    compares = any("direction=LT" in line for line in condition)
    return bounds[0] if compares and len(bounds) == 1 else 1
