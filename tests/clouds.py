"""A cloud on this machine: tests/standins on PATH, and what the scripts of launch/ do with them."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
STANDINS = ROOT / "tests/standins"
# As bert-jax on a worker: notes its words, and ends as the word of this start says; the last is for all others.
BERT_JAX = """#!/usr/bin/env bash
source_of=$(basename "$HOME")
printf '%s\\0' "$source_of" "$@" >>"$CLOUD/words"
printf '\\n' >>"$CLOUD/words"
echo start >>"$CLOUD/starts-$source_of"
ends=($ENDS)
number=$(wc -l <"$CLOUD/starts-$source_of")
[ "$number" -le "${#ends[@]}" ] || number=${#ends[@]}
end=${ends[number - 1]}
echo "this run says $end"
case "$end" in
  wait) touch "$CLOUD/waiting"; trap 'exit 75' TERM; while true; do /bin/sleep 0.02; done ;;
  take*) touch "$CLOUD/$end"; /bin/sleep 60 ;;
  *) exit "$end" ;;
esac
"""


class Cloud:
    """The place of the stand-ins, and what they have been told."""

    def __init__(self, place: Path, scenario: dict, program: str = BERT_JAX):
        self.place = place
        place.mkdir()
        (place / "scenario.json").write_text(json.dumps(scenario))
        make_image(place, program)

    def environment(self, **variables) -> dict:
        path = f"{STANDINS}:{os.environ['PATH']}"
        found = {"PATH": path, "CLOUD": str(self.place), "SLEPT": str(self.place / "slept")}
        return os.environ | variables | found

    def start(self, script: str, *arguments, **variables) -> subprocess.Popen:
        return subprocess.Popen(
            ["bash", str(ROOT / "launch" / script), *arguments],
            env=self.environment(**variables),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, script: str, *arguments, **variables) -> tuple[int, str]:
        """(exit code, all that was said)"""
        process = self.start(script, *arguments, **variables)
        said, _ = process.communicate(timeout=300)
        return process.returncode, said

    def calls(self, *words: str) -> list[list[str]]:
        """The arguments of every call of gcloud that has these words."""
        path = self.place / "calls.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        return [call for call in map(json.loads, lines) if set(words) <= set(call)]

    def words(self) -> list[list[str]]:
        """[worker, ARGUMENT, ...] of every start of bert-jax on a worker."""
        path = self.place / "words"
        starts = path.read_bytes().decode().split("\0\n")[:-1] if path.exists() else []
        return [start.split("\0") for start in starts]

    def end_processes(self) -> None:
        """All that was started here and is still there."""
        line = f"CLOUD={self.place}".encode()
        for path in Path("/proc").glob("[0-9]*/environ"):
            with contextlib.suppress(OSError):
                if line in path.read_bytes().split(b"\0"):
                    os.kill(int(path.parent.name), signal.SIGKILL)

    def slept(self) -> list[int]:
        path = self.place / "slept"
        return [int(line) for line in path.read_text().split()] if path.exists() else []


def make_image(place: Path, program: str) -> None:
    """What every worker finds at its start: the environment that launch/environment.sh would make, whole.

    Its marks are those of the paths that it will have, as a slice of the name `slice` with up to two workers.
    """
    venv = place / "image/bert_jax/.venv"
    (venv / "bin").mkdir(parents=True)
    (venv / "bin/python").symlink_to(sys.executable)
    (venv / "bin/bert-jax").write_text(program)
    (venv / "bin/bert-jax").chmod(0o755)
    (venv / "whole").touch()
    marks = "".join(mark(place / f"slices/slice/worker-{number}/bert_jax") for number in range(2))
    for extra in ("", "tpu"):
        (venv / f"installed-{extra}").write_text(marks)
    shutil.rmtree(place / "slices")


def mark(root: Path) -> str:
    """What launch/environment.sh would write down there, once this checkout is installed."""
    (root / ".venv/bin").mkdir(parents=True)
    (root / ".venv/bin/python").symlink_to(sys.executable)
    for name in ("setup.cfg", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, root)
    line = f"source {ROOT}/launch/environment.sh && fingerprint ''"
    return subprocess.run(
        ["bash", "-c", line], cwd=root, check=True, stdout=subprocess.PIPE, text=True
    ).stdout
