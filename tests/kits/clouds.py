"""A cloud on this machine: tests/standins on PATH, and what the scripts of launch/ do with them."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from kits.places import ROOT

STANDINS = ROOT / "tests/standins"
# As bert-jax on a worker: notes its words, and ends as the word of this start says; the last is for all others.
BERT_JAX = """#!/usr/bin/env bash
[ "$1" != status ] || exit 2 # no run is there
source_of=$(basename "$HOME")
{ printf '%s\\0' "$source_of" "$@"; echo; } >"$CLOUD/said-$$"
cat "$CLOUD/said-$$" >>"$CLOUD/words" # in one go: other workers say theirs at the same time
echo "$XLA_FLAGS" >>"$CLOUD/flags"
echo start >>"$CLOUD/starts-$source_of"
ends=($ENDS)
number=$(wc -l <"$CLOUD/starts-$source_of")
[ "$number" -le "${#ends[@]}" ] || number=${#ends[@]}
end=${ends[number - 1]}
echo "this run says $end"
case "$end" in
  take*) touch "$CLOUD/$end"; /bin/sleep 60 ;;
  *) exit "$end" ;;
esac
"""
# The environment's Python: it takes what is installed for what is wanted, and JAX finds the GPUs that there are.
PYTHON = f"""#!/usr/bin/env bash
case "$*" in
  '- '*) echo fits; exit ;;
  *jax.devices*) echo "$GPUS"; [ -n "$GPUS" ]; exit ;;
esac
exec {sys.executable} "$@"
"""


class Cloud:
    """The place of the stand-ins, and what they have been told. scenario: of gcloud, for whose workers there is an
    environment. root: where the scripts are that run."""

    def __init__(self, place: Path, scenario: dict | None = None, root: Path = ROOT):
        self.place, self.root = place, root
        place.mkdir()
        if scenario is not None:
            (place / "scenario.json").write_text(json.dumps(scenario))
            make_environment(place / "image/bert_jax")

    def environment(self, **variables) -> dict:
        path = f"{STANDINS}:{os.environ['PATH']}"
        found = {"PATH": path, "CLOUD": str(self.place), "SLEPT": str(self.place / "slept")}
        return os.environ | variables | found | {"TEST": str(os.getpid())}

    def run(self, script: str, *arguments, **variables) -> tuple[int, str]:
        """(exit code, all that was said)"""
        ended = subprocess.run(
            ["bash", str(self.root / "launch" / script), *arguments],
            env=self.environment(**variables),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=300,
        )
        return ended.returncode, ended.stdout

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


def make_checkout(root: Path) -> None:
    """The scripts, beside an environment."""
    make_environment(root)
    shutil.copytree(ROOT / "launch", root / "launch")


def make_environment(root: Path) -> None:
    """A .venv that launch/environment.sh takes for whole, with its extras."""
    venv = root / ".venv"
    (venv / "bin").mkdir(parents=True)
    for name, text in {"python": PYTHON, "bert-jax": BERT_JAX}.items():
        (venv / "bin" / name).write_text(text)
        (venv / "bin" / name).chmod(0o755)
    (venv / "whole").touch()
    for name in ("", "tpu", "gcs", "gpu"):
        (venv / f"installed-{name}").write_text("fits\n")
