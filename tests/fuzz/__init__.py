"""Malformed inputs at every door: each ends in one line and exit code 2 with nothing touched, or in a success that an
oracle of that door confirms; never in a traceback, never in a hang.

A door is a function (draw, world, place) -> Attempt: it draws what to do from hypothesis, writes its input into the
empty directory `place`, and says which command to run on it and how a success is judged.
"""

import contextlib
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import hypothesis
from hypothesis import HealthCheck, Phase
from hypothesis import strategies as st

from fuzz import commands, configs, data, models, runs, texts
from fuzz.attempts import judge
from fuzz.watch import watched
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


class Tally(NamedTuple):
    """What became of the tries at one door."""

    refused: int
    right: int  # successes that its oracle has confirmed
    failures: list[str]  # a line or more for each that ended as it must not


def fuzz(tries: int, seed: int, scratch: Path, only=None) -> dict[str, Tally]:
    """Tries as many inputs, as `seed` says: {door: Tally}.

    scratch: a directory that may be filled. only: the names of doors, by default all.
    """
    scratch = Path(scratch)
    world = make_world(scratch / "world")
    doors = {door: part for door, part in DOORS.items() if not only or door.__name__ in only}
    with watched() as begin:
        return {
            door.__name__: fuzz_door(door, share, seed, world, scratch / "try", begin)
            for door, share in shares(tries, doors).items()
        }


def shares(tries: int, parts: dict) -> dict:
    """How many of the tries each door gets: one at least while there are any, the others by largest remainders."""
    given = dict.fromkeys([*parts][:tries], 1)
    left, total = tries - len(given), sum(parts.values())
    exact = {door: left * parts[door] / total for door in given}
    given = {door: 1 + int(exact[door]) for door in given}
    fullest = sorted(given, key=lambda door: int(exact[door]) - exact[door])
    for door in fullest[: tries - sum(given.values())]:
        given[door] += 1
    return given


def fuzz_door(door, tries: int, seed: int, world, place: Path, begin: Callable) -> Tally:
    refused, right, failures = 0, 0, []

    def attempt(draws) -> None:
        nonlocal refused, right
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        tried = door(draws.draw, world, place)
        note = f"{door.__name__} (seed {seed}, try {refused + right + len(failures) + 1})"
        begin(f"{note}: {tried.note}")
        verdict = judge(tried, place, world.path)
        if verdict.problem:
            failures.append(f"{note}: {tried.note}: {verdict.problem}")
        elif verdict.refused:
            refused += 1
        else:
            right += 1

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
