"""A cloud on this machine: tests/standins on PATH, and what the scripts of launch/ do with them."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from kits.places import ROOT

STANDINS = ROOT / "tests/standins"
# As bert-jax on a worker: notes its words, and ends as the word of this start says; the last is for all others.
BERT_JAX = """#!/usr/bin/env bash
[ "$1" != status ] || exit 2 # no run is there
source_of=$(basename "$HOME")
{ printf '%s\\0' "$source_of" "$@"; echo; } >"$CLOUD/said-$$"
cat "$CLOUD/said-$$" >>"$CLOUD/words" # in one go: other workers say theirs at the same time
echo start >>"$CLOUD/starts-$source_of"
ends=($ENDS)
number=$(wc -l <"$CLOUD/starts-$source_of")
[ "$number" -le "${#ends[@]}" ] || number=${#ends[@]}
end=${ends[number - 1]}
echo "this run says $end"
case "$end" in
  wait) touch "$CLOUD/waiting"; trap 'exit 75' TERM; while kill -0 "$TEST"; do /bin/sleep 0.05; done ;;
  take*) touch "$CLOUD/$end"; /bin/sleep 60 ;;
  *) exit "$end" ;;
esac
"""
# The environment's Python, where JAX finds the GPUs that there are.
PYTHON = f"""#!/usr/bin/env bash
case "$*" in *jax.devices*) echo "$GPUS"; [ -n "$GPUS" ]; exit ;; esac
exec {sys.executable} "$@"
"""


class Cloud:
    """The place of the stand-ins, and what they have been told."""

    def __init__(
        self, place: Path, scenario: dict, program: str | None = BERT_JAX, root: Path = ROOT
    ):
        self.place, self.root = place, root
        place.mkdir()
        (place / "scenario.json").write_text(json.dumps(scenario))
        if program:  # or there are no workers that could run it
            make_image(place, program)

    def environment(self, **variables) -> dict:
        path = f"{STANDINS}:{os.environ['PATH']}"
        found = {"PATH": path, "CLOUD": str(self.place), "SLEPT": str(self.place / "slept")}
        return os.environ | variables | found | {"TEST": str(os.getpid())}

    def start(self, script: str, *arguments, **variables) -> subprocess.Popen:
        return subprocess.Popen(
            ["bash", str(self.root / "launch" / script), *arguments],
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


def make_image(place: Path, program: str) -> None:
    """What every worker finds at its start: a whole environment, for a slice of the name `slice` of up to two."""
    homes = [place / f"slices/slice/worker-{number}/bert_jax" for number in range(2)]
    make_environment(place / "image/bert_jax", program, ("tpu", "gcs"), homes)
    shutil.rmtree(place / "slices")


def make_checkout(root: Path, program: str) -> None:
    """The scripts, beside a whole environment with the extra gpu."""
    make_environment(root, program, ("gpu",), [root])
    shutil.copytree(ROOT / "launch", root / "launch")


def make_environment(root: Path, program: str, extras: tuple, homes: list[Path]) -> None:
    """The .venv that launch/environment.sh would make, whole; its marks are those of all places that it may have."""
    marks = "".join(mark(home) for home in homes)
    venv = root / ".venv"
    (venv / "bin").mkdir(parents=True, exist_ok=True)
    for name, text in {"python": PYTHON, "bert-jax": program}.items():
        (venv / "bin" / name).write_text(text)
        (venv / "bin" / name).chmod(0o755)
    (venv / "whole").touch()
    for name in ("", *extras):
        (venv / f"installed-{name}").write_text(marks)


def mark(root: Path) -> str:
    """What launch/environment.sh would write down there, once this checkout is installed."""
    (root / ".venv/bin").mkdir(parents=True)
    (root / ".venv/bin/python").write_text(PYTHON)
    (root / ".venv/bin/python").chmod(0o755)
    for name in ("setup.cfg", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, root)
    line = f"source {ROOT}/launch/environment.sh && fingerprint ''"
    return subprocess.run(
        ["bash", "-c", line], cwd=root, check=True, stdout=subprocess.PIPE, text=True
    ).stdout


@contextlib.contextmanager
def watched(place: Path, monkeypatch) -> Iterator[Callable[..., Cloud]]:
    """What makes a cloud of a scenario; nothing that was started in it is left at the end."""
    for name in ("AGAIN_WAIT", "AGAIN_TIMES", "PYTHON"):
        monkeypatch.delenv(name, raising=False)
    made = []

    def make(program: str = BERT_JAX, **scenario) -> Cloud:
        made.append(Cloud(place, scenario, program))
        return made[0]

    yield make
    for found in made:
        found.end_processes()
