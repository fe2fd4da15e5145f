"""The rows of the table: what is tried, how often, and what must come of it."""

import shutil
import time
import traceback
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from faults import disk, doors, files, kills, not_finite, signals, stores, together
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


class Row(NamedTuple):
    """A fault. attempts: (world, scratch, name, numbers of the tries, seed) -> [Outcome]."""

    fault: str
    must: str
    attempts: Callable
    tries: int
    short: int


ROWS = {
    "kills": Row(
        "SIGKILL at random times, saves included, up to three in a run",
        "ends bitwise equal; a third and more inside a save",
        each(kills.kill),
        50,
        1,
    ),
    "flips": Row(
        "one flipped bit in a checkpoint file",
        "found and the step before used, or harmless: restored values bitwise the originals",
        each(files.flip),
        50,
        3,
    ),
    "checkpoints": Row(
        "a checkpoint file truncated, deleted, emptied; metadata removed; stray and foreign directories",
        "resumes from a good step",
        each(files.damage),
        30,
        3,
    ),
    "disk": Row(
        "full disk, during a save or at a report",
        "code 1 in one line that names the last good step, resumes when there is room",
        each(disk.fill),
        10,  # every other one in a save
        1,
    ),
    "sigterm": Row(
        "SIGTERM, one and two processes: at a step, in a save, an evaluation, while it compiles or restores",
        "the current step saved, code 75 within the deadline, bitwise resume",
        each(signals.terminate),
        10,
        2,
    ),
    "killed": Row(
        "one of two processes killed",
        "all gone within the deadline, each with a reason and its code, restart resumes",
        each(together.killed),
        5,
        1,
    ),
    "raising": Row(
        "one of two processes raising",
        "all gone within the deadline, each with a reason and its code, restart resumes",
        each(together.raising),
        5,
        1,
    ),
    "stopped": Row(
        "one of two processes stopped (SIGSTOP)",
        "all gone within the deadline, each with a reason and its code, restart resumes",
        each(together.stopped),
        5,
        1,
    ),
    "stuck": Row(
        "one of two processes stuck, asleep or never giving Python to another thread",
        "all gone within the deadline, each with a reason and its code, a stack of the stuck one, restart resumes",
        each(together.stuck),
        5,
        1,
    ),
    "stores": Row(
        "store: bit flips, truncations at any place, missing and swapped shards",
        "named",
        each(stores.damage),
        50,
        3,
    ),
    "numbers": Row(
        "NaN in the weights of a batch, a gradient, a parameter",
        "never applied, step named",
        each(not_finite.inject),
        10,
        1,
    ),
    "doors": Row(
        "malformed inputs at every door",
        "code 2 with one line and an untouched directory, or a success that is right",
        doors.attempts,
        2000,
        60,
    ),
}
