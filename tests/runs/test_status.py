"""What an outside monitor is told of a run: by status.json alone, from its own host or from another."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from bert_jax import cli
from bert_jax.errors import BadInput
from bert_jax.runs import report, status, workdir


def write(directory, state="running", **changes):
    """status.json as this process writes it, with changes; the numbers that are not asked about here are made up."""
    workdir.write_status(
        directory,
        state,
        step=5,
        steps=20,
        seconds_left=7,
        last_checkpoint=4,
        loss=1.5,
        progress=workdir.stamp(),
        heartbeat=10,
    )
    change(directory, **changes)


def change(directory, **changes):
    path = directory / "status.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def ago(seconds):
    return workdir.stamp(time.time() - seconds)


@pytest.mark.parametrize("host", [os.uname().nodename, "another"])
@pytest.mark.parametrize("seconds, state", [(0, "running"), (30, "running"), (90, "silent")])
def test_a_run_without_heartbeat_is_silent(tmp_path, host, seconds, state):
    write(tmp_path, host=host, time=ago(seconds), progress=ago(seconds + 5))
    values = status.status(tmp_path)
    assert values["state"] == state
    told = status.describe(values)
    assert told.startswith(f"{state}, step 5 of 20, loss 1.5000, ")
    assert f"last progress {ago(seconds + 5)[:-3]}" in told
    assert ("last sign of life" in told) == (state == "silent")


def test_a_run_whose_process_is_gone_is_killed(tmp_path):
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    mine = dict(pid=process.pid, born=workdir.born(process.pid))
    write(tmp_path, **mine)
    assert status.status(tmp_path)["state"] == "running"
    process.kill()
    while workdir.born(process.pid):
        time.sleep(0.01)
    # Nobody has asked how it ended: its number is still there.
    os.kill(process.pid, 0)
    assert status.status(tmp_path)["state"] == "killed"
    process.communicate()
    assert status.status(tmp_path)["state"] == "killed"
    for other in ({"host": "another"}, {"boot": "another"}, {"space": 1}):
        write(tmp_path, **mine, **other)
        assert status.status(tmp_path)["state"] == "running", "nobody can know it from here"
    write(tmp_path, **mine, space=1, time=ago(90))  # a container of the same name
    assert status.status(tmp_path)["state"] == "silent"


def test_another_process_of_the_same_number_is_not_the_run(tmp_path):
    write(tmp_path, born=workdir.born(os.getpid()) - 1)
    assert status.status(tmp_path)["state"] == "killed"


@pytest.mark.parametrize("state", ["imported", "done", "preempted", "interrupted", "failed"])
def test_a_run_that_has_ended_is_what_it_says(tmp_path, state):
    write(tmp_path, state, time=ago(10**6), pid=2**22 + 1)
    assert status.status(tmp_path)["state"] == state


WRONG = {"state": 1, "step": "5", "pid": True, "born": None, "host": [], "time": 3}
WRONG |= {"progress": 0.5, "heartbeat": "often"}


@pytest.mark.parametrize("key", [*WRONG, "last_checkpoint"])
def test_what_is_no_status_is_refused(tmp_path, key):
    write(tmp_path)
    if key in WRONG:
        change(tmp_path, **{key: WRONG[key]})
        with pytest.raises(BadInput, match=f"status.json: not the status of a run .{key}"):
            status.status(tmp_path)
    values = json.loads((tmp_path / "status.json").read_text())
    del values[key]
    (tmp_path / "status.json").write_text(json.dumps(values))
    with pytest.raises(BadInput, match=f"status.json: not the status of a run .{key}"):
        status.status(tmp_path)


@pytest.mark.parametrize("time", ["yesterday", "2026-13-01T00:00:00Z"])
def test_a_time_that_is_none_is_refused(tmp_path, capsys, time):
    write(tmp_path, time=time)
    assert cli.main(["status", "--workdir", str(tmp_path)]) == 2
    assert capsys.readouterr().err == (
        f"bert-jax: {tmp_path}/status.json: not the status of a run (time)\n"
    )


def read(directory):
    return json.loads((directory / "status.json").read_text())


def wait_until(true):
    deadline = time.monotonic() + 8
    while not true() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert true()


def test_a_run_has_a_heartbeat_until_it_ends(tmp_path, monkeypatch):
    monkeypatch.setattr(report, "HEARTBEAT", 0.05)
    (tmp_path / "run.json").write_text("{}")
    with report.Reporter(tmp_path, 0, 20) as reporter:
        assert read(tmp_path)["state"] == "running", "also before the first step"
        reporter.start(0, 1.0)
        reporter.advance(3)
        # Nothing else happens: only the heartbeat tells of step 3.
        wait_until(lambda: read(tmp_path)["step"] == 3)
        before = read(tmp_path)
        wait_until(lambda: read(tmp_path)["time"] > before["time"])
        assert read(tmp_path)["progress"] == before["progress"], "no step was done"
        (tmp_path / "status.json").unlink()
        wait_until((tmp_path / "status.json").is_file)
        reporter.status("preempted")
        time.sleep(0.2)
        assert read(tmp_path)["state"] == "preempted"
    time.sleep(0.2)
    (tmp_path / "status.json").unlink()
    time.sleep(0.2)
    assert not (tmp_path / "status.json").exists()


def test_a_disk_that_is_full_does_not_end_the_heartbeat(tmp_path, monkeypatch):
    """The thread that trains finds out by itself, and says so."""
    monkeypatch.setattr(report, "HEARTBEAT", 0.05)
    with report.Reporter(tmp_path, 0, 20):
        with monkeypatch.context() as patch:
            patch.setattr(workdir, "write_json", full)
            time.sleep(0.2)
        (tmp_path / "status.json").unlink()
        wait_until((tmp_path / "status.json").is_file)
        assert workdir.read_json(tmp_path / "status.json")["state"] == "running"


def full(*_, **__):
    raise OSError(28, "No space left on device")


def test_a_stopped_process_is_silent_and_then_running_again(tmp_path, monkeypatch):
    code = "import time; from pathlib import Path; from bert_jax.runs import report\n"
    code += f"report.HEARTBEAT = 0.5\nwith report.Reporter(Path({str(tmp_path)!r}), 0, 20):\n"
    code += "    time.sleep(100)"
    process = subprocess.Popen([sys.executable, "-c", code])
    try:
        path = tmp_path / "status.json"
        while not path.exists():
            time.sleep(0.05)
        process.send_signal(signal.SIGSTOP)
        change(tmp_path, time=ago(5))  # rather than waiting for it
        assert status.status(tmp_path)["state"] == "silent"
        process.send_signal(signal.SIGCONT)
        wait_until(lambda: status.status(tmp_path)["state"] == "running")
    finally:
        process.kill()
        process.wait()
