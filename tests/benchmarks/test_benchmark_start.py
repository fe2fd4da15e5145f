"""benchmarks/start.py: its row, and what it refuses before it starts anything."""

import pytest

from benchmarks import start


@pytest.mark.parametrize("processes, target", [(1, "20 s"), (2, "30 s"), (3, "-")])
def test_a_row_has_the_target_of_its_processes(processes, target):
    line = start.row("demo", processes, [(7.61, 8.0, 2.0), (7.0, 8.04, 2.5)])
    many = "process" if processes == 1 else "processes"
    assert line.startswith(f"| start of demo in {processes} {many} to its first reported step")
    assert f"| {target} | 7.6, 7.0 s; of processors 8.0, 8.0 s; programs ready 2.0, 2.5 s" in line
    assert line.count("|") == 5


@pytest.mark.parametrize("option", ["--turns", "--processes"])
def test_no_turn_and_no_process_are_refused(option, monkeypatch, capsys):
    monkeypatch.setattr(start, "first_step", None)
    assert start.main([option, "0"]) == 2
    error = capsys.readouterr().err.strip()
    assert f"{option}: 0: expected a whole number from 1" in error and "\n" not in error
