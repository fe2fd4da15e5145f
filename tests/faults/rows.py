"""The rows of the table: what is tried, how often, and what must come of it."""

import shutil
import time
import traceback
import zlib
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from fuzz import fuzz

from faults import disk, files, inputs, kills, signals
from faults.world import NOT_RUN, NotRun, Outcome, World


def each(attempt: Callable) -> Callable:
    """Tries one by one, each told as it ends and a failed one in full.

    attempt: (world, empty directory, generator, number of the try) -> Outcome.
    """

    def attempts(world: World, scratch: Path, name: str, tries: Iterable[int], seed: int):
        outcomes = []
        for number in tries:
            directory, started = scratch / f"{name}-{number}", time.monotonic()
            directory.mkdir()
            draw = np.random.default_rng([seed, zlib.crc32(name.encode()), number])
            try:
                outcome = attempt(world, directory, draw, number)
            except NotRun as error:
                outcome = Outcome(False, NOT_RUN, f"{NOT_RUN}: {error}")
            except Exception:
                outcome = Outcome(False, "no answer", traceback.format_exc())
            shutil.rmtree(directory)
            outcomes.append(outcome)
            seconds, said = time.monotonic() - started, " ".join(outcome.story.split())
            print(f"{name} {number}, {seconds:.1f} s: {said[:300]}", flush=True)
            if not outcome.ok and outcome.kind != NOT_RUN:
                print(f"FAILED, again by --only {name} --seed {seed} --try {number}")
                print(outcome.story, flush=True)
        return outcomes

    return attempts


def doors(world: World, scratch: Path, name: str, tries: Iterable[int], seed: int):
    """Counted by door: how many were refused, and how many successes its oracle has confirmed."""
    outcomes = []
    for door, tally in fuzz(len(list(tries)), seed, scratch / name).items():  # its own small world
        counts = f"{door}: {tally.refused} refused, {tally.right} right"
        print(counts, *tally.failures, sep="\n", flush=True)
        outcomes += [Outcome(True, f"{door} refused", "")] * tally.refused
        outcomes += [Outcome(True, f"{door} right", "")] * tally.right
        outcomes += [Outcome(False, "neither", text) for text in tally.failures]
    return outcomes


ATTEMPTS = {
    "kills": each(kills.kill),
    "flips": each(files.flip),
    "checkpoints": each(files.damage),
    "disk": each(disk.fill),
    "sigterm": each(signals.terminate),
    "killed": each(partial(signals.disturb, fault="kill")),
    "raising": each(partial(signals.disturb, fault="raise")),
    "stopped": each(partial(signals.disturb, fault="stop")),
    "stuck": each(partial(signals.disturb, fault="stuck")),
    "numbers": each(inputs.put_nan),
    "doors": doors,
}
# Name, tries, tries of a short version, the fault, what must come of it.
TABLE = """
kills       |   30 |  1 | SIGKILL at any time, three times at most | ends bitwise equal
flips       |   10 |  3 | one flipped bit in a checkpoint file | found or harmless: ends bitwise equal
checkpoints |   10 |  3 | a checkpoint damaged, strays beside it | resumes from a good step
disk        |   10 |  1 | full disk | code 1, one line names the last good step; resumes
sigterm     |   10 |  2 | SIGTERM, one and two processes | step saved, code 75, bitwise resume
killed      |    10 |  1 | one of two processes killed | both gone in time with a reason, resumes
raising     |    10 |  1 | one of two processes raising | both gone in time with a reason, resumes
stopped     |    10 |  1 | one of two processes stopped (SIGSTOP) | both gone in time with a stack, resumes
stuck       |    10 |  1 | one of two processes stuck | both gone in time with a stack, resumes
numbers     |   10 |  1 | NaN in the weights of a batch | never applied, step named
doors       | 2000 | 60 | malformed inputs at every door | code 2, one line, nothing touched; or right
"""


class Row(NamedTuple):
    """A fault. attempts: (world, scratch, name, numbers of the tries, seed) -> [Outcome]."""

    attempts: Callable
    tries: int
    short: int
    fault: str
    must: str


def make_row(line: str) -> tuple[str, Row]:
    name, tries, short, fault, must = (cell.strip() for cell in line.split("|"))
    return name, Row(ATTEMPTS[name], int(tries), int(short), fault, must)


ROWS = dict(map(make_row, TABLE.strip().splitlines()))
