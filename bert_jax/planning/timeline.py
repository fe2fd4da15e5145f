"""What a device does one after the other in a compiled step, and how long that takes.

The text of a TPU's program is its schedule: in the order of its lines a device computes, sends and waits, or starts to
send, computes other things, and waits for the rest. Events are plain lists, which JSON keeps:

    ["compute", cycles]                            by the compiler
    ["update", cycles]                             the same, of what is done once for all rows, as to parameters
    ["call", cycles]                               of a custom call, by custom_calls.py
    ["send", [[kind, axes, bytes], ...]]           and wait for it
    ["start", key, [[kind, axes, bytes], ...]]     ["done", key]
    ["loop", trips, events]
"""

import re
from collections.abc import Callable, Iterator
from itertools import chain, groupby

from bert_jax.planning import custom_calls, hlo
from bert_jax.planning.hlo import Instruction

# 19 digits stand for a number that the compiler does not know, as of a scatter on a SparseCore.
CYCLES = re.compile(r'"estimated_cycles":"(\d{1,18})"')
BRANCHES = re.compile(r"branch_computations=\{([^}]*)\}")
GRADIENT = "jvp("  # in the names of all that is computed of rows, forwards and backwards
COMPUTING = ("compute", "update", "call")


def read(text: str, mesh) -> list:
    """The events of a program for the devices of `mesh`; of a condition the branch with most cycles."""
    computations, entry = hlo.computations(text)
    made = {}
    for name, instructions in computations.items():  # what is called stands before what calls it
        found = (events(one, name, computations, made, mesh) for one in instructions)
        made[name] = list(join(chain.from_iterable(found)))
    return made[entry]


def events(
    one: Instruction, computation: str, computations: dict, made: dict, mesh
) -> Iterator[list]:
    """Of an instruction of a computation, with those of the computations that it runs."""
    if found := CYCLES.search(one.text):
        yield ["compute" if GRADIENT in one.text else "update", int(found[1])]
    elif one.opcode == "custom-call" and (count := custom_calls.cycles(one, mesh)):
        yield ["call", count]
    if one.opcode == "fusion":
        yield from fused(one.called("calls"), computations, mesh)
    elif one.opcode == "while":
        yield ["loop", hlo.trips(one, computations), made[one.called("body")]]
    elif one.opcode == "call":
        yield from made[one.called("to_apply")]
    elif branches := BRANCHES.search(one.text):
        yield from max((made[name.strip(" %")] for name in branches[1].split(",")), key=cycles)
    elif one.opcode.removesuffix("-done") in hlo.KINDS and one.opcode.endswith("-done"):
        yield ["done", re.search(r"%?([\w.\-]+)\)", one.text)[1]]
    elif sent := sends(one, computation, mesh):
        is_start = one.opcode.endswith("-start")
        yield ["start", one.name, sent] if is_start else ["send", sent]


def fused(computation: str, computations: dict, mesh) -> Iterator[list]:
    """Of a fusion: a collective and what it is fused with, or the start, a piece, or the end of one."""
    inside = computations[computation]
    targets = {target[1] for one in inside if (target := custom_calls.TARGET.search(one.text))}
    for one in inside:
        sent, key = sends(one, computation, mesh), hlo.chain(one)
        if sent and not key:
            yield ["send", sent]
        elif sent and "AsyncCollectiveStart" in targets:
            yield ["start", key, sent]
        elif sent and "AsyncCollectiveDone" in targets:
            yield ["done", key]


def sends(one: Instruction, computation: str, mesh) -> list[list]:
    found = hlo.collectives(one, computation, mesh)
    return [[part.kind, list(part.axes), round(part.sent)] for part in found]


def join(found: Iterator[list]) -> Iterator[list]:
    """Computing of one kind in one piece."""
    for kind, group in groupby(found, key=lambda event: event[0]):
        if kind in ("compute", "update"):
            yield [kind, sum(event[1] for event in group)]
        else:
            yield from group


def walk(found: list, times: int = 1) -> Iterator[tuple[list, int]]:
    """Every event and how often it happens."""
    for event in found:
        if event[0] == "loop":
            yield from walk(event[2], times * event[1])
        else:
            yield event, times


def cycles(found: list, kinds: tuple[str, ...] = COMPUTING) -> int:
    return sum(event[1] * times for event, times in walk(found) if event[0] in kinds)


def sent(found: list) -> dict[tuple[str, tuple[str, ...]], int]:
    """Bytes by kind and axes."""
    total = {}
    for event, times in walk(found):
        if event[0] in ("send", "start"):
            for kind, axes, count in event[-1]:
                total[kind, tuple(axes)] = total.get((kind, tuple(axes)), 0) + times * count
    return total


def seconds(found: list, hertz: float, sending: Callable[[list], float]) -> float:
    """That the events take. `sending`: the seconds of a list of [kind, axes, bytes]; one is sent after the other."""
    now = free = 0.0  # when the device goes on, and when its links are free
    ends = {}
    for event in found:
        if event[0] in COMPUTING:
            now += event[1] / hertz
        elif event[0] == "loop":
            now = max(now, free) + event[1] * seconds(event[2], hertz, sending)
        elif event[0] == "done":
            now = max(now, ends.get(event[1], now))
        else:
            free = max(now, free) + sending(event[-1])
            if event[0] == "send":
                now = free
            else:
                ends[event[1]] = free
    return max(now, free)
