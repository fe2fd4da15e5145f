"""A simulated cloud: the stand-ins of tests/standins on PATH, and a checkout whose scripts in launch/ call them."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from kits.paths import ROOT

STANDINS = ROOT / "tests/standins"
SETTINGS = ("AGAIN_WAIT", "AGAIN_TIMES", "PYTHON", "XLA_FLAGS")
# Stands in for launch/environment.sh: logs the extras. On a worker, the installation fails if $INSTALL is its name, and
# waits for the file `go` if it is `wait`.
ENVIRONMENT = """
environment() {
  echo "${1:-}" >>"$CLOUD/extras"
  [ -n "${1:-}" ] || return 0
  [ "${INSTALL:-}" != "${HOME##*/}" ] || return 1
  [ "${INSTALL:-}" = wait ] || return 0
  touch "$CLOUD/installing"
  while [ ! -e "$CLOUD/go" ]; do /bin/sleep 0.05; done
}
"""


class Cloud:
    """The stand-ins log their arguments in `directory`. `root` is the checkout; its environment.sh installs nothing."""

    def __init__(self, directory: Path):
        self.directory, self.root = directory, directory / "check out"
        shutil.copytree(ROOT / "launch", self.root / "launch")
        (self.root / "launch/environment.sh").write_text(ENVIRONMENT)
        (self.root / "mine.py").write_text("")
        (self.root / ".gitignore").write_text("hidden.*\n")
        subprocess.run(["git", "init", "-q", self.root], check=True)

    def start(self, *command: str, **variables: str) -> subprocess.Popen:
        """Starts a command in the checkout, on a host named laptop."""
        names = {name: os.environ[name] for name in os.environ if name not in SETTINGS}
        path = f"{STANDINS}:{os.environ['PATH']}"
        here = {"PATH": path, "CLOUD": str(self.directory), "HOME": "/laptop"}
        streams = dict(stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        env = names | here | variables
        return subprocess.Popen(command, cwd=self.root, env=env, text=True, **streams)

    def run(self, *command: str, **variables: str) -> tuple[int, str]:
        """Returns (exit code, output with errors)."""
        process = self.start(*command, **variables)
        output, _ = process.communicate(timeout=60)
        return process.returncode, output

    def lines(self, name: str) -> list[str]:
        """Returns the lines of a log of the stand-ins."""
        path = self.directory / name
        return path.read_text().splitlines() if path.exists() else []

    def calls(self, name: str = "bert-jax") -> list[list[str]]:
        """Returns [host, ARGUMENT, ...] of each call of bert-jax, or the arguments of each call of another stand-in."""
        path = self.directory / name
        calls = path.read_text().split("\0\n")[:-1] if path.exists() else []
        return [call.split("\0") for call in calls]


@pytest.fixture
def cloud(tmp_path) -> Cloud:
    return Cloud(tmp_path)
