"""What starts a command again, and what does not; stand-ins end as a test says."""

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from kits.clouds import Cloud, make_checkout
from kits.places import ROOT
from kits.waiting import wait_until

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
def place(tmp_path, monkeypatch):
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


def start(ends: str, *arguments, **variables) -> subprocess.Popen:
    settings = os.environ | {"ENDS": ends} | variables
    command = [*AGAIN, "./stand_in", *arguments]
    return subprocess.Popen(command, env=settings, stdin=subprocess.DEVNULL)


def run(ends: str, *arguments, **variables) -> tuple[int, int]:
    """(exit code, number of starts)"""
    return start(ends, *arguments, **variables).wait(60), len(lines("starts"))


def lines(name: str) -> list[str]:
    return Path(name).read_text().splitlines() if Path(name).exists() else []


@pytest.mark.parametrize("end", ["75", "76", "134", "137", "143", "signal9", "signal11"])
def test_what_was_preempted_or_killed_starts_again(place, end):
    assert run(f"{end} 0") == (0, 2) and lines("slept") == ["5"]


@pytest.mark.parametrize("code", [0, 1, 2, 127, 129, 130, 131, 255])
def test_what_has_ended_or_would_fail_again_does_not(place, code):
    assert run(f"{code} 0") == (code, 1)


def test_waits_grow_and_end(place):
    assert run("75", AGAIN_WAIT="50", AGAIN_TIMES="4") == (75, 5)
    assert lines("slept") == ["50", "100", "200", "300"]


@pytest.mark.parametrize("words", [["--workdir", "run"], ["--workdir=run"]])
def test_a_new_checkpoint_is_progress(place, words):
    (place / "run/checkpoints/7.broken-1").mkdir(parents=True)
    assert run("75 75 saved75 75 signal9 75 0", *words, AGAIN_TIMES="3") == (75, 6)
    assert lines("slept") == ["5", "10", "5", "10", "20"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_is_passed_on_and_ends(place, number):
    process = start("wait 0")
    wait_until(Path("waiting").exists)
    process.send_signal(number)
    assert process.wait(30) == 75
    assert lines("starts") == ["start"] and lines("told") == ["told"]


def test_a_signal_between_two_starts_ends(place):
    process = start("137 0", AGAIN_WAIT="77")
    wait_until(Path("waiting").exists)
    process.terminate()
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
    wait_until(Path("waiting").exists)
    process.stdin.write(b"\x03")
    process.stdin.flush()
    wait_until(Path("heard").exists)
    assert process.wait(30) == 75 and lines("heard") == ["[2]"]
    process.stdin.close()


LOCAL = """#!/usr/bin/env bash
[ "$1" != env ] || { echo export SET_BY_ENV=yes; exit; }
echo "$1${SET_BY_ENV:-}" >>starts
[ "$(grep -c pretrain starts)/$1" != 1/pretrain ] || kill -KILL $$
"""


def test_local_starts_pretraining_again_and_goes_on(place):
    """launch/local.sh, where bert-jax is a stand-in that is killed at first."""
    shutil.copytree(ROOT / "launch", place / "launch")
    (place / "launch/environment.sh").write_text("environment() { :; }\n")
    (place / "bin/bert-jax").write_text(LOCAL)
    (place / "bin/bert-jax").chmod(0o755)
    subprocess.run(["bash", "launch/local.sh"], check=True, timeout=60)
    assert lines("starts") == [
        "prepare",
        *(f"{name}yes" for name in ("pretrain", "pretrain", "evaluate", "predict")),
    ]


@pytest.mark.parametrize("script", ["again", "faults", "local", "test"])
def test_a_dry_run_prints_commands_and_runs_none(place, script):
    """The others have tests of their own, in which what was printed is pasted."""
    shutil.copytree(ROOT / "launch", place / "launch")
    command = ["bash", f"launch/{script}.sh", "--dry-run", "./stand_in", "it's"]
    told = subprocess.check_output(command, text=True)
    words = [word for line in told.splitlines() for word in shlex.split(line)]
    assert "./stand_in" in words or f"{place}/stand_in" in words
    assert any(word.endswith("it's") for word in words)
    assert not lines("starts") and not (place / ".venv").exists()


RUN = "-- pretrain --config demo --workdir gs://b/run"
TPU = "tpu.sh --name slice --zone us-west4-a --bucket gs://b"
WRONG = {
    f"{TPU} {RUN}": "--type",
    f"{TPU} --type v5litepod-16 --sport {RUN}": "--sport",
    f"{TPU} --type v5litepod-16 {RUN} --config.tokenizer.path=/else/vocab.txt": "--config.token",
    "tpu.sh --name slice --zone z --type v5litepod-16 -- pretrain --config demo": "--workdir",
    f"gke.sh --name bert --type v9 --topology 4x4 --image x {RUN}": "--type",
    f"gke.sh --name bert --type v6e --topology 16 --image x {RUN}": "--topology",
    f"gke.sh --name A_ --type v6e --topology 4x4 --image x {RUN}": "--name",
    f"slurm.sh --name bert --nodes 2 --gpus 0 --time 8:00:00 {RUN}": "--gpus",
    f"slurm.sh --name bert --nodes 2 --gpus 1 --time '8 hours' {RUN}": "--time",
}


@pytest.mark.parametrize("command", WRONG)
def test_what_is_wrong_is_said_in_a_line_before_anything_is_done(tmp_path, command):
    make_checkout(tmp_path / "checkout")
    subprocess.run(["git", "init", "-q", tmp_path / "checkout"], check=True)
    here = Cloud(tmp_path / "cloud", root=tmp_path / "checkout")
    code, said = here.run(*shlex.split(command))
    assert code == 2 and said.count("\n") == 1 and WRONG[command] in said, said
    assert not list(here.place.iterdir())


def documented() -> list[str]:
    """Every command of the documentation that starts a script of launch/, as one line."""
    texts = [path.read_text() for path in (ROOT / "README.md", *ROOT.glob("docs/**/*.md"))]
    commands = re.findall(r"^    (bash launch/.*)$", "\n".join(texts).replace("\\\n", ""), re.M)
    return [shlex.join(shlex.split(command, comments=True)) for command in commands]


def test_the_scripts_take_the_commands_of_the_documentation():
    commands = documented()
    assert len({re.search("launch/([a-z]+).sh", command)[1] for command in commands}) > 5
    for command in commands:
        command = command.replace("mine.py", "demo").removesuffix(" ...")
        if " -- " in command:
            command = command.replace(" -- ", " --dry-run -- ")
            command = command.replace("bert_base", "bert_base --workdir gs://b/w")
        elif re.search("(tpu|gke|slurm).sh", command):
            command += " --dry-run"
        else:
            command = command.replace(".sh", ".sh --dry-run")
        told = subprocess.run(["bash", "-c", command], cwd=ROOT, capture_output=True, text=True)
        assert told.returncode == 0, (command, told.stderr)


@pytest.mark.parametrize("script", sorted(path.name for path in ROOT.glob("launch/*.sh")))
def test_every_script_says_what_it_is_for(script):
    path = ROOT / "launch" / script
    if not path.read_text().startswith("# shellcheck shell=bash"):  # sourced by the others
        told = subprocess.check_output(["bash", path, "--help"], text=True)
        assert told.startswith(f"usage: bash launch/{script}")


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("shellcheck"), reason="needs the extra test, on PATH")
def test_shellcheck_finds_nothing():
    scripts = sorted(ROOT.glob("launch/*.sh"))
    standins = sorted(ROOT.glob("tests/standins/*"))
    scripts += [path for path in standins if path.read_text().startswith("#!/usr/bin/env bash")]
    command = ["shellcheck", "--external-sources", *scripts, ".ci/run"]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout
