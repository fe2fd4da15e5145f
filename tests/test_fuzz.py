"""Malformed inputs at every door, a short version with a fresh seed. All of it: `bash launch/faults.sh`."""

import secrets

import fuzz


def test_every_door(tmp_path):
    seed = secrets.randbelow(1 << 32)
    print(f"seed {seed}")
    failures = fuzz.fuzz(100, seed, tmp_path)
    assert not failures, f"seed {seed}:\n" + "\n".join(failures)
