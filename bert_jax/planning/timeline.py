"""What a device does one after the other in a compiled step, and how long that takes.

The text of a TPU's program is its schedule: in the order of its lines a device computes, sends and waits, or starts to
send, computes other things, and waits for the rest. Events are plain lists, which JSON keeps:

    ["compute", cycles]                            by the compiler
    ["call", cycles]                               of a custom call, by custom_calls.py
    ["send", [[kind, axes, bytes], ...]]           and wait for it
    ["start", key, [[kind, axes, bytes], ...]]     ["done", key]
    ["loop", trips, events]
"""

import re
from collections.abc import Callable, Iterator

from bert_jax.planning import custom_calls, hlo

CYCLES = re.compile(r'"estimated_cycles":"(\d+)"')
FUSED = re.compile(r"\bcalls=%?([\w.\-]+)")
COMPUTING = ("compute", "call")
NAME = re.compile(r"^\s+(?:ROOT )?%?([\w.\-]+) = ")


def read(text: str, mesh) -> list:
    """The events of a program for the devices of `mesh`; of a condition the branch with most cycles."""
    lines, entry = hlo.computations(text)
    made = {}
    for name in lines:  # what is called stands before what calls it
        made[name] = join(list(events(lines[name], lines, made, mesh)))
    return made.get(entry, [])


def events(own: list[str], lines: dict, made: dict, mesh) -> Iterator[list]:
    """Of the lines of one computation, with those of the others that it runs."""
    for line in own:
        if found := CYCLES.search(line):
            yield ["compute", int(found[1])]
        elif count := custom_calls.cycles(line, mesh):
            yield ["call", count]
        if "-done(" in line:
            opcode, operand = re.search(r" ([\w\-]+)-done\((?:[^%]*)%?([\w.\-]+)", line).groups()
            if opcode in hlo.KINDS:
                yield ["done", operand]
        elif " fusion(" in line:
            yield from fused(line, lines, mesh)
        elif branches := hlo.branches(line):
            yield from max((made.get(name, []) for name in branches), key=cycles)
        elif " while(" in line:
            loop = dict(re.findall(r"\b(condition|body)=%?([\w.\-]+)", line))
            yield ["loop", hlo.trips(line, lines), made.get(loop["body"], [])]
        elif " call(" in line:
            for name, _ in hlo.calls(line, lines):
                yield from made.get(name, [])
        else:
            yield from plain(line, mesh)


def plain(line: str, mesh) -> Iterator[list]:
    if not any(f" {kind}" in line for kind in hlo.KINDS):
        return
    instruction = hlo.parse(line)
    sent = sends(hlo.exchange(instruction, mesh)) if instruction else []
    if sent and instruction.opcode.endswith("-start"):
        yield ["start", NAME.match(line)[1], sent]
    elif sent:
        yield ["send", sent]


def fused(line: str, lines: dict, mesh) -> Iterator[list]:
    """Of a fusion: a collective and what it is fused with, or the start, a piece, or the end of one."""
    name = FUSED.search(line)[1]
    inside = lines.get(name, [])
    text = "\n".join(inside)
    parsed = [hlo.parse(other, name) for other in inside] if "replica_groups" in text else []
    for instruction in filter(None, parsed):
        key = hlo.chain(instruction)
        sent = sends(hlo.exchange(instruction, mesh))
        if sent and key is None:
            yield ["send", sent]
        elif sent and 'custom_call_target="AsyncCollectiveStart"' in text:
            yield ["start", "/".join(key), sent]
        elif sent and 'custom_call_target="AsyncCollectiveDone"' in text:
            yield ["done", "/".join(key)]


def sends(collectives: list[hlo.Collective]) -> list[list]:
    return [[one.kind, list(one.axes), round(one.sent)] for one in collectives]


def join(found: list) -> list:
    """Computing in one piece."""
    joined = []
    for event in found:
        if event[0] == "compute" and joined and joined[-1][0] == "compute":
            joined[-1] = ["compute", joined[-1][1] + event[1]]
        else:
            joined.append(event)
    return joined


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
