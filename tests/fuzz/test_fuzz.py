"""Malformed inputs at every door, a short version with a fresh seed. All of it: `bash launch/faults.sh`."""

import os
import secrets
import subprocess
import sys
from pathlib import Path

import pytest

import fuzz


@pytest.mark.slow
def test_every_door(tmp_path, capsys):
    seed = secrets.randbelow(1 << 32)
    # Not captured: a try that is stuck in C takes the process and all that it has kept with it.
    with capsys.disabled():
        print(f"\nfuzz: seed {seed}", flush=True)
        found = fuzz.fuzz(100, seed, tmp_path)
        counts = [f"{door} {t.refused} refused, {t.right} right" for door, t in found.items()]
        print(f"fuzz: {'; '.join(counts)}")
    failures = [line for tally in found.values() for line in tally.failures]
    assert not failures, f"seed {seed}:\n" + "\n".join(failures)
    assert sum(t.refused for t in found.values()) and sum(t.right for t in found.values())


@pytest.mark.parametrize("tries", [1, 5, 12, 13, 60, 100, 2000])
def test_every_door_has_its_share_of_tries(tries):
    given = fuzz.shares(tries, fuzz.DOORS)
    assert sum(given.values()) == tries and len(given) == min(tries, len(fuzz.DOORS))
    left, total = tries - len(given), sum(fuzz.DOORS.values())
    for door, number in given.items():
        assert number >= 1 and abs(number - 1 - left * fuzz.DOORS[door] / total) < 1


STUCK = """
import itertools
from fuzz import watch
watch.STUCK = 2
with watch.watched() as begin:
    begin("the third try")
    sum(itertools.repeat(0))  # no signal's handler runs in it, and no other thread
"""


def test_what_is_stuck_in_c_is_told_and_killed():
    variables = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])}
    command = [sys.executable, "-c", STUCK]
    ended = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=100)
    assert ended.returncode == -9
    assert "the third try" in ended.stderr and 'File "<string>", line 7' in ended.stderr
