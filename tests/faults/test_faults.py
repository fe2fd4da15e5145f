"""A short version of every fault of docs/faults.md, from a fresh seed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.full
@pytest.mark.slow
def test_a_short_version_of_all():
    """A process of its own, whose devices and compiled programs are not those of the tests."""
    command = [sys.executable, "-m", "faults", "--short"]
    variables = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])}
    ended = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=3600)
    print(ended.stdout)  # every try and the seed
    assert ended.returncode == 0, ended.stderr[-2000:]
