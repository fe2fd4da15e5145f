"""launch/again.sh: which exit codes restart a command, how long it waits, and how it passes signals on."""

import subprocess
import sys
from pathlib import Path

import pytest
from kits.paths import ROOT
from kits.waiting import wait_until

AGAIN = ("bash", "launch/again.sh", "bert-jax", "pretrain")


@pytest.mark.parametrize("end", ["75", "76", "134", "137", "142", "143", "signal9", "signal11"])
def test_a_preempted_or_killed_command_is_restarted(cloud, end):
    code, output = cloud.run(*AGAIN, ENDS=f"{end} 0")
    assert code == 0 and len(cloud.calls()) == 2 and cloud.lines("slept") == ["5"], output


@pytest.mark.parametrize("end", [0, 1, 2, 127, 129, 130, 131, 255])
def test_a_command_that_is_done_or_would_fail_again_is_not_restarted(cloud, end):
    code, output = cloud.run(*AGAIN, "a b", "it's", ENDS=f"{end} 0")
    assert code == end and cloud.calls() == [["laptop", "pretrain", "a b", "it's"]], output


def test_waits_double_up_to_the_limit_of_restarts(cloud):
    code, _ = cloud.run(*AGAIN, ENDS="75", AGAIN_WAIT="50", AGAIN_TIMES="4")
    assert code == 75 and cloud.lines("slept") == ["50", "100", "200", "300"]


@pytest.mark.parametrize("arguments", [["--workdir", "run"], ["--workdir=a", "--workdir=run"]])
def test_a_new_checkpoint_resets_the_wait_and_the_limit(cloud, arguments):
    ends = "75 75 saved75 75 signal9 75 0"
    code, output = cloud.run(*AGAIN, *arguments, ENDS=ends, AGAIN_TIMES="3")
    assert code == 75 and cloud.lines("slept") == ["5", "10", "5", "10", "20"], output


def test_sigterm_is_passed_on_and_prevents_a_restart(cloud):
    process = cloud.start(*AGAIN, ENDS="wait 0")
    wait_until((cloud.directory / "waiting").exists)
    process.terminate()
    process.communicate(timeout=30)
    assert process.returncode == 75
    assert len(cloud.calls()) == 1 and cloud.lines("terminated") == ["yes"]


def test_a_signal_during_the_wait_prevents_a_restart(cloud):
    process = cloud.start(*AGAIN, ENDS="137 0", AGAIN_WAIT="77")
    wait_until((cloud.directory / "waiting").exists)
    process.terminate()
    process.communicate(timeout=30)
    assert process.returncode == 137 and len(cloud.calls()) == 1


INTERRUPTED = """
import signal, time
received = []
for number in (2, 15):
    signal.signal(number, lambda number, _: received.append(number))
open("waiting", "w").close()
while not received:
    time.sleep(0.01)
time.sleep(0.5)
open("received", "w").write(str(received))
raise SystemExit(75)
"""


def test_ctrl_c_signals_the_command_once(tmp_path, monkeypatch):
    """A second signal would end pretraining unsaved."""
    monkeypatch.chdir(tmp_path)
    command = ["bash", str(ROOT / "launch/again.sh"), sys.executable, "-c", INTERRUPTED]
    # A shell cannot trap a signal that was ignored when it started, as in the background of a script.
    spawn = f"import os, pty, signal, sys; signal.signal(2, signal.SIG_DFL); status = pty.spawn({command})"
    spawn += "; sys.exit(os.waitstatus_to_exitcode(status))"
    streams = dict(stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    process = subprocess.Popen([sys.executable, "-c", spawn], **streams)
    wait_until(Path("waiting").exists)
    process.stdin.write(b"\x03")
    process.stdin.flush()
    wait_until(Path("received").exists)
    assert process.wait(30) == 75 and Path("received").read_text() == "[2]"
    process.stdin.close()
