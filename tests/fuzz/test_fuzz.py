"""Malformed inputs at every door: a short pass that is the same each time. All of it: `bash launch/faults.sh`."""

import secrets

import pytest

import fuzz


def check(found: dict) -> None:
    failures = [line for tally in found.values() for line in tally.failures]
    assert not failures, "\n".join(failures)
    assert sum(t.refused for t in found.values()) and sum(t.right for t in found.values())


@pytest.mark.slow
def test_a_few_inputs_at_every_door(tmp_path, finished):
    check(fuzz.fuzz(30, 0, tmp_path, finished))


@pytest.mark.full
@pytest.mark.slow
def test_many_inputs_at_every_door(tmp_path, finished, capsys):
    seed = secrets.randbelow(1 << 32)
    with capsys.disabled():  # also where nothing fails
        print(f"\nfuzz: seed {seed}", flush=True)
    check(fuzz.fuzz(1000, seed, tmp_path, finished))
