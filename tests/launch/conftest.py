"""A cloud on this machine: tests/standins on PATH, and a checkout whose scripts of launch/ run against them."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from kits.places import ROOT

STANDINS = ROOT / "tests/standins"
SETTINGS = ("AGAIN_WAIT", "AGAIN_TIMES", "PYTHON", "XLA_FLAGS", "XLA_PYTHON_CLIENT_MEM_FRACTION")


class Cloud:
    """`place` is where the stand-ins note what they are told; `root` is the checkout, which needs no environment."""

    def __init__(self, place: Path):
        self.place, self.root = place, place / "check out"
        shutil.copytree(ROOT / "launch", self.root / "launch")
        note = 'environment() { echo "${1:-}" >>"$CLOUD/extras"; }\n'
        (self.root / "launch/environment.sh").write_text(note)
        (self.root / "mine.py").write_text("")
        (self.root / ".gitignore").write_text("hidden.*\n")
        subprocess.run(["git", "init", "-q", self.root], check=True)

    def start(self, *command: str, **variables: str) -> subprocess.Popen:
        """A command in the checkout, on a machine that is called laptop."""
        names = {name: os.environ[name] for name in os.environ if name not in SETTINGS}
        path = f"{STANDINS}:{os.environ['PATH']}"
        here = {"PATH": path, "CLOUD": str(self.place), "HOME": "/laptop"}
        return subprocess.Popen(
            command,
            cwd=self.root,
            env=names | here | variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, *command: str, **variables: str) -> tuple[int, str]:
        """(exit code, all that was said)"""
        process = self.start(*command, **variables)
        said, _ = process.communicate(timeout=60)
        return process.returncode, said

    def lines(self, name: str) -> list[str]:
        """What the stand-ins have noted in a file."""
        path = self.place / name
        return path.read_text().splitlines() if path.exists() else []

    def words(self, name: str = "words") -> list[list[str]]:
        """[host, ARGUMENT, ...] of every start of bert-jax, or the arguments of each call of another stand-in."""
        path = self.place / name
        starts = path.read_text().split("\0\n")[:-1] if path.exists() else []
        return [start.split("\0") for start in starts]


@pytest.fixture
def cloud(tmp_path) -> Cloud:
    return Cloud(tmp_path)
