"""Reads the schedule of a device from a compiled step, and computes how long it takes.

The text of a TPU or GPU program is its schedule: the device runs its lines in order. A collective either blocks, or
starts, overlaps with other compute and is waited for. Events are plain lists, because JSON has no tuples:

    ["compute", cycles]                            the compiler's estimate
    ["update", cycles]                             the same, of work that does not scale with the rows: the optimizer
    ["roofline", cycles, ...]                      arithmetic: a custom call, or with FLOPs and bytes a GPU's operation
    ["send", [[kind, axes, bytes], ...]]           blocking
    ["start", key, [[kind, axes, bytes], ...]]     asynchronous; ["done", key] waits for it
    ["loop", trips, events]
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache

from bert_jax.planning import custom_calls, gpu_operations, hlo
from bert_jax.planning.hlo import Instruction

# 19 digits mean that the compiler has no estimate, as for a scatter on a SparseCore.
CYCLES = re.compile(r'"estimated_cycles":"(\d{1,18})"')
GRADIENT = "jvp("  # in the names of all operations of the forward and backward pass
COMPUTING = ("compute", "update", "roofline")


def read(text: str, mesh) -> list:
    """Returns the events of a program for the devices of `mesh`; of a conditional, those of its longest branch."""
    computations, entry = hlo.computations(text)
    is_gpu = mesh.devices.flat[0].platform == "gpu"

    @cache
    def read_body(name: str) -> list:
        body = computations[name]
        shapes = hlo.shapes(body) if is_gpu else {}
        result = []
        for op in body:
            if is_gpu:
                result += gpu_operations.events(op, shapes, computations, mesh)
            else:
                result += computing(op, mesh)
            result += events(op, name, computations, read_body, mesh)
        return result

    return read_body(entry)


def computing(op: Instruction, mesh) -> Iterator[list]:
    """Yields the event of an instruction of a TPU program if it computes."""
    if estimate := CYCLES.search(op.text):
        yield ["compute" if GRADIENT in op.text else "update", int(estimate[1])]
    elif op.opcode == "custom-call" and (count := custom_calls.cycles(op, mesh)):
        yield ["roofline", count]


def events(
    op: Instruction, computation: str, computations: dict, read_body: Callable, mesh
) -> Iterator[list]:
    """Yields the events of what an instruction sends, and of the computations that it calls.

    read_body: name of a computation -> its events.
    """
    if op.opcode == "fusion":
        yield from fusion_events(op.called("calls"), computations, mesh)
    elif op.opcode == "while":
        yield ["loop", hlo.trips(op, computations), read_body(op.called("body"))]
    elif op.opcode == "call":
        yield from read_body(op.called("to_apply"))
    elif branches := re.search(r"branch_computations=\{([^}]*)\}", op.text):
        names = [name.strip(" %") for name in branches[1].split(",")]
        yield from max(map(read_body, names), key=cycles)
    elif op.opcode.removesuffix("-done") in hlo.KINDS and op.opcode.endswith("-done"):
        yield ["done", re.search(r"%?([\w.\-]+)\)", op.text)[1]]
    elif sent := transfers(op, computation, mesh):
        if op.opcode.endswith("-start"):
            yield ["start", op.name, sent]
        else:
            yield ["send", sent]


def fusion_events(computation: str, computations: dict, mesh) -> Iterator[list]:
    """Yields the events of collectives inside a fusion: whole collectives, their starts, pieces and ends."""
    body = computations[computation]
    targets = {op.target for op in body}
    for op in body:
        sent = transfers(op, computation, mesh)
        if not sent:
            continue
        key = hlo.chain(op)
        if not key:
            yield ["send", sent]
        elif "AsyncCollectiveStart" in targets:
            yield ["start", key, sent]
        elif "AsyncCollectiveDone" in targets:
            yield ["done", key]


def transfers(op: Instruction, computation: str, mesh) -> list[list]:
    """Returns [kind, axes, bytes] of each collective of an instruction."""
    collectives = hlo.collectives(op, computation, mesh)
    return [[part.kind, list(part.axes), round(part.sent)] for part in collectives]


def walk(events: list, times: int = 1) -> Iterator[tuple[list, int]]:
    """Yields every event and how often it runs."""
    for event in events:
        match event:
            case ["loop", trips, body]:
                yield from walk(body, times * trips)
            case _:
                yield event, times


def cycles(events: list, kinds: tuple[str, ...] = COMPUTING) -> int:
    """Returns the cycles of all events of these kinds."""
    return sum(event[1] * times for event, times in walk(events) if event[0] in kinds)


def sent(events: list) -> dict[tuple[str, tuple[str, ...]], int]:
    """Returns the bytes that a device sends, by kind of collective and mesh axes."""
    total = Counter()
    for event, times in walk(events):
        match event:
            case ["send" | "start", *_, transfers]:
                for kind, axes, count in transfers:
                    total[kind, tuple(axes)] += times * count
    return total


def seconds(events: list, hertz: float, sending: Callable) -> float:
    """Returns the seconds that the events take. Transfers run one after the other.

    sending: (kind, axes, bytes) -> seconds of a transfer.
    """
    now = 0.0  # when the device continues
    free = 0.0  # when its links are free
    ends = {}  # {key: when an asynchronous transfer ends}
    for event in events:
        match event:
            case ["compute" | "update" | "roofline", cycles, *_]:
                now += cycles / hertz
            case ["loop", trips, body]:
                now = max(now, free) + trips * seconds(body, hertz, sending)
            case ["done", key]:
                now = max(now, ends.get(key, now))
            case ["send" | "start", *key, transfers]:
                free = max(now, free) + sum(sending(*transfer) for transfer in transfers)
                if key:
                    ends[key[0]] = free
                else:
                    now = free
    return max(now, free)
