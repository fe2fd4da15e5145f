"""A short version of every fault of docs/faults.md, from a fresh seed; and what the table keeps of its rows."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from faults import table
from faults.world import NOT_RUN, Outcome

TESTS = Path(__file__).parent
LONGEST = 900  # seconds: half more than all of it may take


@pytest.mark.slow
def test_a_short_version_of_all(capsys):
    """A process of its own, whose devices and compiled programs are not those of the tests."""
    command = [sys.executable, "-m", "faults", "--short"]
    variables = os.environ | {"PYTHONPATH": str(TESTS)}
    process = subprocess.run(
        command, env=variables, cwd=TESTS, capture_output=True, text=True, timeout=LONGEST
    )
    seed = process.stdout.partition("\n")[0]
    with capsys.disabled():  # also where nothing fails
        print(f"\nfaults: {seed}")
        print(*(line for line in process.stdout.splitlines() if NOT_RUN in line), sep="\n")
    print(process.stdout)  # shown where it fails: every try
    assert process.returncode == 0, process.stderr[-2000:]


def test_rows_are_replaced_and_others_stay(tmp_path):
    path, order = tmp_path / "docs/faults.md", ["one", "two"]
    good, bad = Outcome(True, "named", ""), Outcome(False, "named", "")
    for name, outcomes in [("two", [good, bad]), ("one", [good]), ("two", [good, good])]:
        text = table.row(name, "a fault", "be named", outcomes, 3.2, 7, "0abc")
        table.write(path, order, {name: text})
    rows = table.read(path)
    assert [name for name in rows if name in order] == order
    assert "| 1 | be named | 1 of 1: 1 named | 3 | 7 | 0abc |" in rows["one"]
    assert "| 2 | be named | 2 of 2: 2 named | 3 | 7 | 0abc |" in rows["two"]
    assert "1 of 2" not in path.read_text()


def test_a_row_tells_the_slowest_end_and_what_was_not_run():
    outcomes = [Outcome(True, "saved", "", seconds) for seconds in (1.0, 7.25, 3.0)]
    assert table.summary(outcomes) == "3 of 3: 3 saved; ended within 7.2 s"
    outcomes = [Outcome(True, "in a save", ""), Outcome(False, NOT_RUN, "")]
    assert table.summary(outcomes) == "1 of 2: 1 in a save; 1 not run"
    assert [table.is_failure(outcome, False) for outcome in outcomes] == [False, True]
    assert [table.is_failure(outcome, True) for outcome in outcomes] == [False, False]
