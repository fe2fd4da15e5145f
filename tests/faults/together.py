"""One of two processes killed, raising, stopped or stuck: all end in time, each says why, a restart goes on."""

import contextlib
import re
import signal
import time
from functools import partial
from pathlib import Path

from faults import moments
from faults.world import HALF, TOGETHER, Outcome, World

DEADLINES = {"compile": 120, "step": 8, "save": 8, "evaluate": 60}  # seconds
HEARTBEAT = 10  # seconds
ALLOWED = 60.0  # seconds until all are gone: the longest deadline that is armed, last words, a busy machine
# JAX ends who has lost process 0 by itself, in its own words.
REASON = "^bert-jax: |^RuntimeError: |Terminating process because"
STUCK = ("sleep", "hold")


def disturb(world: World, directory: Path, draw, number: int, fault: str) -> Outcome:
    run, which = directory / "run", int(draw.integers(2))
    changes = {f"deadlines.{key}": seconds for key, seconds in DEADLINES.items()}
    changes["distributed.heartbeat"] = HEARTBEAT
    kind = STUCK[number % len(STUCK)] if fault == "stuck" else fault
    inside = f"{kind}:{which}:{draw.integers(3, HALF)}" if fault in ("raise", "stuck") else ""
    with world.started(run, TOGETHER, fault=inside, **changes) as running:
        story = f"process {which}: {inside or fault}"
        if inside:
            batch = int(inside.rpartition(":")[2])
            # Two batches and a report may lie between a batch that is given and one that is told of.
            with contextlib.suppress(moments.Missed):  # who raises may be gone before
                moments.wait(running, lambda: moments.last_step(run / "metrics.jsonl") >= batch - 2)
        elif draw.random() < 0.5:
            story += f" {moments.at_a_step(running, run, draw, 1, HALF)}"
        else:
            story += f" {moments.in_a_save(running, run, draw, HALF // 2)}"
        if not inside:
            number = signal.SIGKILL if fault == "kill" else signal.SIGSTOP
            running[which].send_signal(number)
        begun = time.monotonic()
        ended = world.wait(running, run, ALLOWED)
        seconds = time.monotonic() - begun
    story += f"; all gone after {seconds:.1f} s with {[process.code for process in ended]}"
    wrong = ended_wrongly(ended, which, fault) or world.finish(run, TOGETHER)
    return Outcome(not wrong, "all gone", f"{story}; {wrong or 'bitwise'}")


def ended_wrongly(ended, which: int, fault: str) -> str:
    """What is wrong with the ends of both processes, or an empty text."""
    for number, process in enumerate(ended):
        if process.code == 0:
            return f"process {number} ended with 0: {process.said}"
        killed_by_us = fault == "kill" and number == which
        if not killed_by_us and not re.search(REASON, process.said, re.M):
            return f"process {number} gave no reason: {process.said}"
    if fault == "stuck" and "most recent call first" not in ended[which].said:
        return f"no stack of the stuck process: {ended[which].said}"
    return ""


killed, raising = partial(disturb, fault="kill"), partial(disturb, fault="raise")
stopped, stuck = partial(disturb, fault="stop"), partial(disturb, fault="stuck")
