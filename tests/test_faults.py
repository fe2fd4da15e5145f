"""A short version of every fault of docs/faults.md, from a fresh seed; and what the table keeps of its rows."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from faults import table
from faults.world import Outcome

TESTS = Path(__file__).parent


@pytest.mark.slow
def test_a_short_version_of_all(capsys):
    """A process of its own, whose devices and compiled programs are not those of the tests."""
    command = [sys.executable, "-m", "faults", "--short"]
    variables = os.environ | {"PYTHONPATH": str(TESTS)}
    process = subprocess.run(command, env=variables, cwd=TESTS, capture_output=True, text=True)
    seed = process.stdout.partition("\n")[0]
    with capsys.disabled():
        print(f"\nfaults: {seed}")  # also where nothing fails
    print(process.stdout)  # shown where it fails: every try
    assert process.returncode == 0, process.stderr[-2000:]


def test_rows_are_replaced_and_others_stay(tmp_path):
    path, order = tmp_path / "docs/faults.md", ["one", "two"]
    good, bad = Outcome(True, "named", ""), Outcome(False, "named", "")
    for name, outcomes in [("two", [good, bad]), ("one", [good]), ("two", [good, good])]:
        was = table.summary(outcomes)
        text = table.row(name, "a fault", len(outcomes), "be named", was, 3.2, 7)
        table.write(path, order, {name: text})
    rows = table.read(path)
    assert [name for name in rows if name in order] == order
    assert "| 1 | be named | 1 of 1: 1 named | 3 | 7 |" in rows["one"]
    assert "| 2 | be named | 2 of 2: 2 named | 3 | 7 |" in rows["two"]
    assert "1 of 2" not in path.read_text()
