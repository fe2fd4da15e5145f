"""What starts a command again, and what does not; stand-ins end as a test says."""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from kits import processes
from kits.places import ROOT
from kits.small import SMALL, overrides, write_corpus

from bert_jax.runs import status

AGAIN = ["bash", str(ROOT / "launch/again.sh")]
# Notes its start, saves where it is told to, and ends as the word of this start says; the last word is for all others.
STAND_IN = """#!/usr/bin/env bash
echo start >>starts
number=$(wc -l <starts)
words=($ENDS)
[ "$number" -le "${#words[@]}" ] || number=${#words[@]}
word=${words[number - 1]}
case "$word" in saved*) mkdir -p "run/checkpoints/$(wc -l <starts)"; word=${word#saved} ;; esac
case "$word" in
  signal*) kill "-${word#signal}" $$ ;;
  wait) trap 'echo told >>told; exit 75' TERM; touch waiting; while true; do sleep 0.05; done ;;
  *) exit "$word" ;;
esac
"""
SLEEP = '#!/usr/bin/env bash\necho "$1" >>slept\n[ "$1" != 77 ] || { touch waiting; exec /bin/sleep 77; }\n'


@pytest.fixture
def heeded():
    """Commands heed hang-ups also where whoever started the tests ignores them, as nohup does."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.fixture
def place(tmp_path, monkeypatch, heeded):
    """A directory with stand-ins for a command, and for the sleep between two starts."""
    monkeypatch.chdir(tmp_path)
    for name, text in {"stand_in": STAND_IN, "bin/sleep": SLEEP}.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    for name in ("AGAIN_WAIT", "AGAIN_TIMES"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def run(ends: str, *arguments, **variables):
    """(exit code, number of starts, stderr)"""
    command = [*AGAIN, "./stand_in", *arguments]
    settings = os.environ | {"ENDS": ends} | variables
    ended = subprocess.run(command, env=settings, capture_output=True, text=True, timeout=60)
    return ended.returncode, len(lines("starts")), ended.stderr


def lines(name: str) -> list[str]:
    return Path(name).read_text().splitlines() if Path(name).exists() else []


@pytest.mark.parametrize("end", ["75", "76", "134", "137", "143", "signal9", "signal6", "signal11"])
def test_what_was_preempted_or_killed_starts_again(place, end):
    code, starts, errors = run(f"{end} 0")
    assert (code, starts, lines("slept")) == (0, 2, ["5"])
    number = 128 + int(end.removeprefix("signal")) if "signal" in end else int(end)
    assert errors == f"exit code {number}; starting again in 5 seconds\n" or "signal" in end


@pytest.mark.parametrize("code", [0, 1, 2, 3, 127, 129, 130, 131, 255])
def test_what_has_ended_or_would_fail_again_does_not(place, code):
    assert run(f"{code} 0") == (code, 1, "")


@pytest.mark.parametrize("number", [1, 2])
def test_what_its_user_has_ended_does_not(place, number):
    assert run(f"signal{number} 0")[:2] == (128 + number, 1)


def test_waits_grow_and_end(place):
    code, starts, errors = run("75", AGAIN_WAIT="50", AGAIN_TIMES="4")
    assert (code, starts) == (75, 5)
    assert lines("slept") == ["50", "100", "200", "300"]
    assert errors.endswith("exit code 75; given up: no new checkpoint in 5 starts\n")


@pytest.mark.parametrize("words", [["--workdir", "run"], ["--workdir=run"]])
def test_a_new_checkpoint_is_progress(place, words):
    code, starts, _ = run("75 75 saved75 75 signal9 75 0", *words, AGAIN_TIMES="3")
    assert (code, starts) == (75, 6)
    assert lines("slept") == ["5", "10", "5", "10", "20"]


def test_directories_that_are_no_checkpoints_are_not(place):
    (place / "run/checkpoints/7.broken-1").mkdir(parents=True)
    (place / "run/checkpoints/notes").mkdir()
    assert run("75", "--workdir", "run", AGAIN_TIMES="1")[:2] == (75, 2)


def started(ends: str, **variables):
    return subprocess.Popen(
        [*AGAIN, "./stand_in"],
        env=os.environ | {"ENDS": ends} | variables,
        stdin=subprocess.DEVNULL,
    )


def wait_for(path: str):
    deadline = time.monotonic() + 30
    while not Path(path).exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_is_passed_on_and_ends(place, number):
    process = started("wait 0")
    wait_for("waiting")
    process.send_signal(number)
    assert process.wait(30) == 75
    assert lines("starts") == ["start"] and lines("told") == ["told"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_between_two_starts_ends(place, number):
    process = started("137 0", AGAIN_WAIT="77")
    wait_for("waiting")
    process.send_signal(number)
    assert process.wait(30) == 137
    assert lines("starts") == ["start"]


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


def test_a_terminal_interrupts_the_command_once(place):
    """As by Ctrl-C: a second signal would end pretraining unsaved."""
    command = [*AGAIN, sys.executable, "-c", INTERRUPTED]
    spawn = f"import os, pty, sys; sys.exit(os.waitstatus_to_exitcode(pty.spawn({command})))"
    process = subprocess.Popen(
        [sys.executable, "-c", spawn], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL
    )
    wait_for("waiting")
    process.stdin.write(b"\x03")
    process.stdin.flush()
    wait_for("heard")
    assert process.wait(30) == 75
    process.stdin.close()
    assert Path("heard").read_text() == "[2]"


LOCAL = """#!/usr/bin/env bash
echo "$1" >>starts
case "$1 $(grep -c "$1" starts)" in
  'pretrain 1') kill -KILL $$ ;;
  'pretrain 2') trap 'exit 75' TERM; touch waiting; while [ ! -e go ]; do sleep 0.05; done ;;
esac
"""


@pytest.fixture
def local(place):
    """launch/local.sh, where bert-jax is a stand-in: killed at first, then waiting for a file or a signal."""
    shutil.copytree(ROOT / "launch", place / "launch")
    (place / "launch/environment.sh").write_text("environment() { :; }\n")
    (place / "bin/bert-jax").write_text(LOCAL)
    (place / "bin/bert-jax").chmod(0o755)
    process = subprocess.Popen(
        ["bash", "launch/local.sh"], stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True
    )
    wait_for("waiting")
    yield process
    process.kill()
    process.communicate()


def test_local_starts_pretraining_again_and_goes_on(local):
    Path("go").touch()
    output, _ = local.communicate(timeout=30)
    assert local.returncode == 0
    assert lines("starts") == ["prepare", "pretrain", "pretrain", "evaluate", "predict"]
    assert "+ bert-jax pretrain --config demo --workdir " in output


def test_local_passes_a_signal_on_and_ends(local):
    local.terminate()
    assert local.wait(30) == 75
    assert lines("starts") == ["prepare", "pretrain", "pretrain"]


def test_its_command_line():
    told = subprocess.run([*AGAIN, "--help"], capture_output=True, text=True)
    assert told.returncode == 0 and told.stdout.startswith(
        "usage: bash launch/again.sh [--dry-run] COMMAND"
    )
    for wrong in ([], ["--times"]):
        ended = subprocess.run([*AGAIN, *wrong], capture_output=True, text=True)
        assert ended.returncode == 2 and ended.stderr == told.stdout


@pytest.mark.parametrize("script", ["again", "faults", "local", "test"])
def test_a_dry_run_prints_commands_and_runs_none(place, script):
    """The others have tests of their own, in which what was printed is pasted."""
    shutil.copytree(ROOT / "launch", place / "launch")
    command = ["bash", f"launch/{script}.sh", "--dry-run", "./stand_in", "it's"]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    words = [word for line in told.splitlines() for word in shlex.split(line)]
    assert "./stand_in" in words or f"{place}/stand_in" in words
    assert any(word.endswith("it's") for word in words)
    assert not lines("starts") and not (place / ".venv").exists()


def documented() -> list[str]:
    """Every command of the documentation that starts a script of launch/, as one line."""
    texts = [path.read_text() for path in (ROOT / "README.md", *ROOT.glob("docs/**/*.md"))]
    commands = re.findall(r"^    (bash launch/.*)$", "\n".join(texts).replace("\\\n", ""), re.M)
    return [shlex.join(shlex.split(command, comments=True)) for command in commands]


def test_the_scripts_take_the_commands_of_the_documentation():
    commands = documented()
    found = {re.search("launch/([a-z]+).sh", command)[1] for command in commands}
    assert found >= {"again", "gke", "gpu", "local", "slurm", "test", "tpu"}
    for command in commands:
        command = command.replace("mine.py", "demo").removesuffix(" ...")
        if " -- " in command:
            command = command.replace(" -- ", " --dry-run -- ").replace(
                "bert_base", "bert_base --workdir gs://b/w"
            )
        elif re.search("(tpu|gke|slurm).sh", command):
            command += " --dry-run"
        else:
            command = command.replace(".sh", ".sh --dry-run")
        told = subprocess.run(["bash", "-c", command], cwd=ROOT, capture_output=True, text=True)
        assert told.returncode == 0, (command, told.stderr)


@pytest.mark.parametrize("script", sorted(path.name for path in ROOT.glob("launch/*.sh")))
def test_every_script_says_what_it_is_for(script):
    text = (ROOT / "launch" / script).read_text()
    if text.startswith("# shellcheck shell=bash"):  # sourced by the others
        return
    told = subprocess.run(
        ["bash", ROOT / "launch" / script, "--help"], capture_output=True, text=True
    )
    assert told.returncode == 0 and told.stdout.startswith(f"usage: bash launch/{script}")
    assert "--dry-run" in told.stdout or script == "worker.sh"  # which launch/tpu.sh alone calls


@pytest.mark.skipif(not shutil.which("shellcheck"), reason="needs the extra test, on PATH")
def test_shellcheck_finds_nothing():
    scripts = sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("launch/*.sh"))
    standins = sorted(ROOT.glob("tests/standins/*"))
    scripts += [
        str(path) for path in standins if path.read_text().startswith("#!/usr/bin/env bash")
    ]
    command = ["shellcheck", "--external-sources", *scripts, ".ci/run"]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout


@pytest.mark.slow
def test_a_run_that_is_killed_and_then_gets_stuck_ends_as_done(tmp_path):
    """Twice it is started again: after a kill from outside, and after one by its own deadline while it is stopped."""
    write_corpus(tmp_path / "corpus.txt", documents=60)
    settings = SMALL | {
        "corpus.source": str(tmp_path / "corpus.txt"),
        "store": str(tmp_path / "store"),
        "phases.main.steps": 400,
        "checkpoint.every": 20,
        "deadlines.step": 5,  # and whatever else it may be doing when it is stopped
        "deadlines.save": 20,
        "deadlines.evaluate": 20,
    }
    keys = [f"--config.{override}" for override in overrides(settings)]
    command = [*AGAIN, sys.executable, "-m", "bert_jax", "pretrain", "--config", "demo", *keys]
    command += ["--workdir", str(tmp_path / "run")]
    with open(tmp_path / "errors", "w") as errors:
        process = subprocess.Popen(
            command, env=processes.environment(1, AGAIN_WAIT="1"), cwd=ROOT, stderr=errors
        )
        seen = []
        for number in (signal.SIGKILL, signal.SIGSTOP):
            seen.append(running(tmp_path / "run", seen))
            os.kill(seen[-1], number)
        assert process.wait(300) == 0, (tmp_path / "errors").read_text()
    assert status.status(tmp_path / "run")["state"] == "done"
    told = (tmp_path / "errors").read_text()
    assert told.count("exit code 137; starting again in 1 seconds") == 2
    assert re.search("^bert-jax: .* took longer than [0-9]+ s \\(config.deadlines", told, re.M)
    text = (tmp_path / "run/metrics.jsonl").read_text()
    steps = [
        line["step"] for line in map(json.loads, text.splitlines()) if line["split"] == "train"
    ]
    assert steps == list(range(5, 401, 5))


def running(workdir: Path, seen: list[int]) -> int:
    """The number of a process that is another than those seen, and has saved something itself."""
    deadline = time.monotonic() + 200
    while time.monotonic() < deadline:
        if (workdir / "status.json").exists():
            found = status.status(workdir)
            saved = found["last_checkpoint"] or 0
            if found["state"] == "running" and found["pid"] not in seen and saved > 20 * len(seen):
                return found["pid"]
        time.sleep(0.05)
    raise TimeoutError
