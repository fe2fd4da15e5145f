"""Mutation tests: each mutant is a wrong line in the package, with the test file of the everyday suite that catches it.

    python tests/mutants.py [NAME ...]      tries all, or these, two at a time; the exit code is 1 if one survives

A mutant is applied to a copy of the checkout. A test file that passes on a mutant does not test what the mutant breaks.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
TIMEOUT = 600  # seconds per test file
PARTS = ("bert_jax/", "configs/", "examples/", "docs/", "launch/", "tests/", "setup.cfg")


class Mutant(NamedTuple):
    """A wrong line, and the test that catches it."""

    name: str
    file: str  # in bert_jax/, or examples/NAME/FILE
    right: str  # the text to replace, which is in the file once
    wrong: str
    test: str  # in tests/

    @property
    def path(self) -> str:
        """Its file in the checkout."""
        return self.file if self.file.startswith("examples/") else f"bert_jax/{self.file}"


def read(path: Path) -> list[Mutant]:
    rows = []
    for line in path.read_text().splitlines()[1:]:
        if line[:2] == "- ":
            rows[-1][2].append(line[2:])
        elif line[:2] == "+ ":
            rows[-1][3].append(line[2:])
        else:
            name, file, test = line.split(" | ")
            rows.append((name, file, [], [], test))
    return [
        Mutant(name, file, "\n".join(right), "\n".join(wrong), test)
        for name, file, right, wrong, test in rows
    ]


MUTANTS = read(Path(__file__).with_suffix(".txt"))


def copy_checkout(directory: Path) -> None:
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    for name in names.stdout.splitlines():
        if name.startswith(PARTS) and (ROOT / name).is_file():
            (directory / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, directory / name)


def run_tests(directory: Path, test: str) -> int:
    """Returns the exit code of pytest: 0 passed, 1 failed; -1 after TIMEOUT."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider"]
    command += ["-p", "no:xdist", f"tests/{test}"]
    variables = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    try:
        return subprocess.run(
            command, cwd=directory, env=variables, capture_output=True, timeout=TIMEOUT
        ).returncode
    except subprocess.TimeoutExpired:
        return -1


def run(mutant: Mutant, directory: Path) -> str:
    """Returns `caught`, or why not. directory: for the copy of the checkout."""
    copy_checkout(directory)
    file = directory / mutant.path
    text = file.read_text()
    if text.count(mutant.right) != 1:
        return f"{mutant.path} has the text {text.count(mutant.right)} times, not once"
    file.write_text(text.replace(mutant.right, mutant.wrong))
    code = run_tests(directory, mutant.test)
    return "caught" if code == 1 else f"tests/{mutant.test} ended with {code}"


def main(names: list[str]) -> int:
    chosen = [mutant for mutant in MUTANTS if not names or mutant.name in names]

    def is_caught(mutant: Mutant) -> bool:
        with tempfile.TemporaryDirectory() as directory:
            result = run(mutant, Path(directory))
        print(f"{result:<8} {mutant.name} ({mutant.test})", flush=True)
        return result == "caught"

    with ThreadPoolExecutor(2) as pool:
        results = list(pool.map(is_caught, chosen))
    print(f"{sum(results)} of {len(results)} mutants caught")
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
