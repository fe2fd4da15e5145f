"""Malformed inputs at every door: each ends in one line and exit code 2 with nothing touched, or in a success that an
oracle of that door confirms; never in a traceback, never in a hang.

A door is a function (draw, world, place) -> Attempt: it draws what to do from hypothesis, writes its input into the
empty directory `place`, and says which command to run on it and how a success is judged.
"""

import contextlib
import shutil
from pathlib import Path

import hypothesis
from hypothesis import HealthCheck, Phase
from hypothesis import strategies as st

from fuzz import commands, configs, data, models, runs, texts
from fuzz.attempts import judge
from fuzz.world import make_world

# How many of a hundred tries are at which door.
DOORS = {
    configs.as_json: 12,
    configs.as_python: 8,
    configs.override: 8,
    texts.text: 14,
    texts.vocabulary: 10,
    data.verified_store: 8,
    data.opened_store: 4,
    data.saved_batches: 6,
    runs.workdir: 10,
    models.imported: 10,
    runs.request: 4,
    commands.command_line: 6,
}


def fuzz(tries: int, seed: int, scratch: Path, only=None) -> list[str]:
    """Tries as many inputs, as `seed` says; a line or more for each that ended as it must not.

    scratch: a directory that may be filled. only: the names of doors, by default all.
    """
    scratch = Path(scratch)
    world = make_world(scratch / "world")
    doors = {door: part for door, part in DOORS.items() if not only or door.__name__ in only}
    failures, total, done = [], sum(doors.values()), 0
    for number, (door, part) in enumerate(doors.items(), 1):
        share = (tries * part + total - 1) // total
        share = tries - done if number == len(doors) else min(share, tries - done)
        failures += fuzz_door(door, share, seed, world, scratch / "try")
        done += share
    return failures


def fuzz_door(door, tries: int, seed: int, world, place: Path) -> list[str]:
    failures, done = [], 0

    def attempt(draws) -> None:
        nonlocal done
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        done += 1
        tried = door(draws.draw, world, place)
        problem = judge(tried, place)
        if problem:
            failures.append(f"{door.__name__} (seed {seed}, try {done}): {tried.note}: {problem}")

    while done < tries:  # hypothesis may stop early
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
    return failures
