"""Moments in the life of a run, seen from outside by its files: a step, the inside of a save, any time."""

import json
import os
import time
from pathlib import Path

from faults.world import EVERY, HALF, STEPS

PAUSE = 0.002  # seconds between two looks
LONGEST = 200.0  # seconds to wait for a moment
LIFE = 15.0  # seconds of a run, about: imports and compiling are most of it


class Missed(Exception):
    """The run had ended before, or the moment did not come."""


def wait(running, seen) -> None:
    """Until seen() is true."""
    deadline = time.monotonic() + LONGEST
    while not seen():
        if any(process.poll() is not None for process in running) or time.monotonic() > deadline:
            raise Missed("it ended before, or the moment did not come")
        time.sleep(PAUSE)


def at_any_time(running, run: Path, draw) -> str:
    seconds = draw.uniform(0, LIFE)
    end = time.monotonic() + seconds
    wait(running, lambda: time.monotonic() >= end)
    return f"{seconds:.2f} s after the start"


def at_a_step(running, run: Path, draw) -> str:
    """Soon after the report of one of the next steps by this start."""
    path, before = run / "metrics.jsonl", begun(run)
    step = min(last_step(path) + int(draw.integers(1, HALF)), STEPS - 3)
    more = draw.uniform(0, 0.1)
    wait(running, lambda: begun(run) != before and last_step(path) >= step)
    time.sleep(more)
    return f"{more:.3f} s after step {step}"


def in_a_save(running, run: Path, draw, longest: float = 0.06) -> str:
    """At most `longest` seconds into one of the next saves of this start; it may be over by then."""
    number, more = int(draw.integers(1, HALF // EVERY // 2)), draw.uniform(0, longest)
    before, found = begun(run), set()

    def seen():
        if begun(run) != before:  # from now on what is not finished is of this start
            found.update(unfinished(run))
        return len({name.partition(".")[0] for name in found}) >= number

    wait(running, seen)
    time.sleep(more)
    return f"{more:.3f} s after save number {number} of this start began"


def unfinished(run: Path) -> set[str]:
    """Names of Orbax's directories of saves that are not whole yet, and of what kills have left of them; a start
    removes those before it begins to train."""
    try:
        return {name for name in os.listdir(run / "checkpoints") if "tmp" in name}
    except FileNotFoundError:
        return set()


def begun(run: Path):
    """Another value once a start has begun to train: it replaces metrics.jsonl before it adds to it."""
    path = run / "metrics.jsonl"
    return path.stat().st_ino if path.exists() else None


def last_step(path: Path) -> int:
    """The last step that a run has reported, 0 where there is none yet."""
    ends = path.read_text().rpartition("\n")[0].splitlines() if path.exists() else []
    return json.loads(ends[-1])["step"] if ends else 0
