"""Malformed inputs at every door: each ends in one line and exit code 2 with nothing touched, or in a success that an
oracle of that door confirms; never in a traceback, never in a hang.

A door is a function (draw, world, place) -> Attempt: it draws what to do from hypothesis, writes its input into the
empty directory `place`, and says which command to run on it and how a success is judged.
"""

import contextlib
import faulthandler
import os
import shutil
from pathlib import Path
from typing import NamedTuple

import hypothesis
from hypothesis import HealthCheck, Phase
from hypothesis import strategies as st

from fuzz import configs, data, models, runs, texts
from fuzz.attempts import judge
from fuzz.world import make_world

STUCK = 100  # seconds after which a try that is stuck in C ends the process, with its stacks on standard error
# How many of a hundred tries are at which door.
DOORS = {
    configs.as_json: 12,
    configs.as_python: 8,
    configs.override: 8,
    texts.text: 16,
    texts.vocabulary: 10,
    data.verified_store: 8,
    data.opened_store: 4,
    data.saved_batches: 6,
    runs.workdir: 14,
    models.imported: 14,
}


class Tally(NamedTuple):
    """What became of the tries at one door."""

    refused: int
    right: int  # successes that its oracle has confirmed
    failures: list[str]  # a line or more for each that ended as it must not


def fuzz(tries: int, seed: int, scratch: Path, finished=None) -> dict[str, Tally]:
    """Tries about as many inputs, at least one a door, as `seed` says: {door: Tally}.

    scratch: a directory that may be filled. finished: (settings, workdir) of a run to copy, or None to train one.
    """
    world, place = make_world(scratch / "world", finished), scratch / "try"
    with open(os.dup(2), "w") as err:  # as it is now: a try has another
        return {
            door.__name__: fuzz_door(door, max(1, tries * part // 100), seed, world, place, err)
            for door, part in DOORS.items()
        }


def fuzz_door(door, tries: int, seed: int, world, place: Path, err) -> Tally:
    refused, right, failures = 0, 0, []

    def attempt(draws) -> None:
        nonlocal refused, right
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        tried = door(draws.draw, world, place)
        faulthandler.dump_traceback_later(STUCK, exit=True, file=err)
        verdict = judge(tried, place, world.path)
        faulthandler.cancel_dump_traceback_later()
        if verdict.problem:
            failures.append(f"{door.__name__} (seed {seed}): {tried.note}: {verdict.problem}")
        refused += verdict.refused and not verdict.problem
        right += not verdict.refused and not verdict.problem

    while (done := refused + right + len(failures)) < tries:  # hypothesis may stop early
        settings = hypothesis.settings(
            max_examples=tries - done,
            database=None,
            deadline=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        seeded = hypothesis.seed(f"{seed} {done}")
        # It may doubt that a door draws the same each time; the tries that are left begin anew.
        with contextlib.suppress(hypothesis.errors.Flaky):
            seeded(settings(hypothesis.given(st.data())(attempt)))()
    shutil.rmtree(place, ignore_errors=True)
    return Tally(refused, right, failures)
