"""The status of a run, read from status.json on its own host or on another."""

import json
import os
import sys
import threading
import time

import numpy as np
import pytest
from kits.small import VOCABULARY, small_config
from kits.waiting import wait_until

from bert_jax import cli
from bert_jax.errors import BadInput
from bert_jax.runs import lock, report, status, workdir

KNOWN = dict(step=5, steps=20, seconds_left=7, loss=1.5)


def write(directory, state="running", **changes):
    """Writes status.json for this process, with changes."""
    workdir.write_status(directory, state, progress=workdir.stamp(), **KNOWN)
    change(directory, **changes)


def change(directory, **changes):
    (directory / "status.json").write_text(json.dumps(read(directory) | changes))


def read(directory):
    return json.loads((directory / "status.json").read_text())


def ago(seconds):
    return workdir.stamp(time.time() - seconds)


@pytest.mark.parametrize("host", [os.uname().nodename, "another"])
@pytest.mark.parametrize("seconds, state", [(0, "running"), (30, "running"), (90, "silent")])
def test_a_run_without_heartbeat_is_silent(tmp_path, host, seconds, state):
    write(tmp_path, host=host, time=ago(seconds))
    values = status.status(tmp_path)
    assert values["state"] == state
    assert status.describe(values).startswith(f"{state}, step 5 of 20")


def test_a_run_whose_lock_is_free_was_killed(tmp_path):
    write(tmp_path)
    with lock.on_disk(tmp_path):
        assert status.status(tmp_path)["state"] == "running"
    assert status.status(tmp_path)["state"] == "killed"
    write(tmp_path, host="another")
    assert status.status(tmp_path)["state"] == "running", "another machine cannot know"


@pytest.mark.parametrize("state", ["imported", "done", "preempted", "interrupted", "failed"])
def test_a_finished_run_keeps_its_state(tmp_path, state):
    write(tmp_path, state, time=ago(10**6), pid=2**22 + 1)
    assert status.status(tmp_path)["state"] == state


WRONG = {"state": 1, "step": "5", "pid": True, "host": [], "time": "yesterday"}
WRONG |= {"progress": 0.5}


@pytest.mark.parametrize("key", WRONG)
def test_a_damaged_status_is_refused_with_the_key(tmp_path, key):
    write(tmp_path, **{key: WRONG[key]})
    with pytest.raises(BadInput, match=f"{tmp_path}/status.json.*{key}"):
        status.status(tmp_path)
    values = read(tmp_path)
    del values[key]
    (tmp_path / "status.json").write_text(json.dumps(values))
    assert cli.main(["status", "--workdir", str(tmp_path)]) == 2


def test_a_run_has_a_heartbeat_until_it_ends(tmp_path, monkeypatch):
    """Also after errors."""
    monkeypatch.setattr(report, "HEARTBEAT", 0.05)
    write_status, errors = workdir.write_status, [ValueError, OSError]

    def failing(*arguments, **values):
        if errors and threading.current_thread() is not threading.main_thread():
            raise errors.pop()
        write_status(*arguments, **values)

    monkeypatch.setattr(workdir, "write_status", failing)
    info = {"unigram_entropy": 3.0, "phases": {}, "devices": []}
    info["vocabulary"] = VOCABULARY._asdict()
    workdir.write_info(tmp_path, info)
    with report.Reporter(workdir.Workdir(tmp_path), 0, small_config()) as reporter:
        assert read(tmp_path)["state"] == "running", "also before the first step"
        reporter.start(0, 1.0)
        reporter.advance(3)
        # Nothing else happens: only the heartbeat reports step 3.
        wait_until(lambda: read(tmp_path)["step"] == 3)
        assert not errors
        before = read(tmp_path)
        wait_until(lambda: read(tmp_path)["time"] > before["time"])
        assert read(tmp_path)["progress"] == before["progress"], "no step was done"
        reporter.status("preempted")
        time.sleep(0.2)  # several heartbeats
        assert read(tmp_path)["state"] == "preempted"
    (tmp_path / "status.json").unlink()
    time.sleep(0.2)
    assert not (tmp_path / "status.json").exists()


def draw(directory, *losses, split="train"):
    """Returns what is drawn of these losses: the heights of the bars, and the text after them."""
    lines = [{"step": 1, "split": "heldout", "seconds": 1.0, "loss": 99.0}]
    lines += [lines[0] | {"split": split, "loss": loss} for loss in losses]
    path = directory / "metrics.jsonl"
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    _, bars, text = (status.draw_losses(path) or "  ").split(" ", 2)
    return [*map(status.BARS.index, bars)], text


@pytest.mark.parametrize("number", [2, status.WIDTH - 1, status.WIDTH, 1003])
def test_losses_are_drawn_as_bars(tmp_path, number):
    losses = np.linspace(8.208, 4.391, number)
    heights, text = draw(tmp_path, *losses)
    assert len(heights) == min(number, status.WIDTH) and text == "8.21 to 4.39"
    assert heights == sorted(heights, reverse=True)
    assert heights[0] == len(status.BARS) - 1 and heights[-1] == 0
    assert draw(tmp_path, *losses[::-1])[0] == sorted(heights)
    assert draw(tmp_path, *losses, None, np.nan, "4") == (heights, text)


def test_a_bar_is_the_mean_of_its_share(tmp_path):
    levels = np.linspace(0.0, 7.0, status.WIDTH)
    swings = np.resize([2.0, -2.0], status.WIDTH)
    heights, _ = draw(tmp_path, *np.stack([levels + swings, levels - swings], axis=1).ravel())
    assert heights == sorted(heights) and {*heights} == {*range(len(status.BARS))}


def test_losses_without_a_range_are_drawn(tmp_path):
    assert draw(tmp_path, 3.0, 3.0) == ([7, 7], "3.00 to 3.00")
    assert draw(tmp_path, None) == ([], "")
    assert draw(tmp_path, 3.0, split="dev") == ([], "")
    assert status.draw_losses(tmp_path / "another") == ""


def test_only_a_terminal_gets_the_bars(tmp_path, monkeypatch, capsys):
    write(tmp_path, "done")
    command = ["status", "--workdir", str(tmp_path)]
    assert cli.main(command) == 0
    plain = capsys.readouterr().out
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert cli.main(command) == 0 and capsys.readouterr().out == plain, "without metrics"
    draw(tmp_path, 2.0, 1.0)
    assert cli.main(command) == 0
    assert capsys.readouterr().out == f"{plain}loss █▁ 2.00 to 1.00\n"
    monkeypatch.undo()
    assert cli.main(command) == 0 and capsys.readouterr().out == plain
