"""launch/again.sh: which ends of a command start it again, and how it passes signals on."""

import subprocess
import sys
from pathlib import Path

import pytest
from kits.places import ROOT
from kits.waiting import wait_until

AGAIN = ("bash", "launch/again.sh", "bert-jax", "pretrain")


@pytest.mark.parametrize("end", ["75", "76", "134", "137", "142", "143", "signal9", "signal11"])
def test_what_was_preempted_or_killed_starts_again(cloud, end):
    code, said = cloud.run(*AGAIN, ENDS=f"{end} 0")
    assert code == 0 and len(cloud.words()) == 2 and cloud.lines("slept") == ["5"], said


@pytest.mark.parametrize("end", [0, 1, 2, 127, 129, 130, 131, 255])
def test_what_has_ended_or_would_fail_again_does_not(cloud, end):
    code, said = cloud.run(*AGAIN, "a b", "it's", ENDS=f"{end} 0")
    assert code == end and cloud.words() == [["laptop", "pretrain", "a b", "it's"]], said


def test_waits_grow_and_end(cloud):
    code, _ = cloud.run(*AGAIN, ENDS="75", AGAIN_WAIT="50", AGAIN_TIMES="4")
    assert code == 75 and cloud.lines("slept") == ["50", "100", "200", "300"]


@pytest.mark.parametrize("words", [["--workdir", "run"], ["--workdir=run"]])
def test_a_new_checkpoint_is_progress(cloud, words):
    ends = "75 75 saved75 75 signal9 75 0"
    code, said = cloud.run(*AGAIN, *words, ENDS=ends, AGAIN_TIMES="3")
    assert code == 75 and cloud.lines("slept") == ["5", "10", "5", "10", "20"], said


def test_sigterm_is_passed_on_and_ends(cloud):
    process = cloud.start(*AGAIN, ENDS="wait 0")
    wait_until((cloud.place / "waiting").exists)
    process.terminate()
    process.communicate(timeout=30)
    assert process.returncode == 75
    assert len(cloud.words()) == 1 and cloud.lines("told") == ["told"]


def test_a_signal_between_two_starts_ends(cloud):
    process = cloud.start(*AGAIN, ENDS="137 0", AGAIN_WAIT="77")
    wait_until((cloud.place / "waiting").exists)
    process.terminate()
    process.communicate(timeout=30)
    assert process.returncode == 137 and len(cloud.words()) == 1


INTERRUPTED = """
import signal, time
heard = []
for number in (2, 15):
    signal.signal(number, lambda number, _: heard.append(number))
open("waiting", "w").close()
while not heard:
    time.sleep(0.01)
time.sleep(0.5)
open("heard", "w").write(str(heard))
raise SystemExit(75)
"""


def test_a_terminal_interrupts_the_command_once(tmp_path, monkeypatch):
    """As by Ctrl-C: a second signal would end pretraining unsaved."""
    monkeypatch.chdir(tmp_path)
    command = ["bash", str(ROOT / "launch/again.sh"), sys.executable, "-c", INTERRUPTED]
    spawn = f"import os, pty, sys; sys.exit(os.waitstatus_to_exitcode(pty.spawn({command})))"
    process = subprocess.Popen(
        [sys.executable, "-c", spawn], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL
    )
    wait_until(Path("waiting").exists)
    process.stdin.write(b"\x03")
    process.stdin.flush()
    wait_until(Path("heard").exists)
    assert process.wait(30) == 75 and Path("heard").read_text() == "[2]"
    process.stdin.close()
