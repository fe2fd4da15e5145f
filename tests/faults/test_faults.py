"""A short version of every fault of docs/faults.md, from a fresh seed; and what the table keeps of its rows."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from faults import table
from faults.world import NOT_RUN, Outcome


@pytest.mark.full
@pytest.mark.slow
def test_a_short_version_of_all():
    """A process of its own, whose devices and compiled programs are not those of the tests."""
    command = [sys.executable, "-m", "faults", "--short"]
    variables = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])}
    ended = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=3600)
    print(ended.stdout)  # every try and the seed
    assert ended.returncode == 0, ended.stderr[-2000:]


def test_rows_are_replaced_and_others_stay(tmp_path):
    path, order = tmp_path / "docs/faults.md", ["one", "two"]
    good, bad = Outcome(True, "named", ""), Outcome(False, NOT_RUN, "")
    for name, outcomes in [("two", [good, bad]), ("one", [good]), ("two", [good, good])]:
        text = table.row(name, "a fault", "be named", outcomes, 3.2, 7, "0abc")
        table.write(path, order, {name: text})
    rows = table.read(path)
    assert [name for name in rows if name in order] == order
    assert "| 1 of 1: 1 named |" in rows["one"] and "| 2 of 2: 2 named |" in rows["two"]
    assert [table.is_failure(bad, is_short) for is_short in (False, True)] == [True, False]
