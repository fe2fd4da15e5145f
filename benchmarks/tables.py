"""Runs the commands of benchmarks/tables.md, by the names of its sections.

    python benchmarks/tables.py                  # lists the names
    python benchmarks/tables.py NAME ... [--data DIR]

The commands run in the root of the repository, with the Python that runs this script; the first one that fails ends the
script with its exit code. If a file is missing, nothing runs, and the exit code is 2. The commit, the date and the
machine are printed before each table.
"""

import argparse
import os
import platform
import re
import subprocess
import sys
import tempfile
from datetime import date
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="tables; without any, lists them")
    default = os.path.relpath(ROOT.parent / "shared" / "data")
    parser.add_argument("--data", type=Path, default=default, help="default: %(default)s")
    options = parser.parse_args(arguments)
    tables = read()
    data = options.data.resolve()
    problems = [problem for name in options.names for problem in missing(tables, name, data)]
    if problems:
        print(f"tables.py: {problems[0]}", file=sys.stderr)
        return 2
    for name in options.names:
        print(f"\n### {name}\n\n{describe_machine()}\n", flush=True)
        code = run(tables[name], data)
        if code:
            print(f"tables.py: {name}: exit code {code}", file=sys.stderr)
            return code
    if not options.names:
        print("\n".join(tables))
    return 0


def read() -> dict[str, str]:
    """Returns {name of a section: its commands, the indented lines}."""
    text = (ROOT / "benchmarks/tables.md").read_text(encoding="utf-8")
    _, *parts = re.split(r"^## (.+)\n", text, flags=re.MULTILINE)
    indented = ("\n".join(re.findall(r"^    (.*)", part, re.MULTILINE)) for part in parts[1::2])
    return dict(zip(parts[::2], indented, strict=True))


def missing(tables: dict[str, str], name: str, data: Path) -> list[str]:
    """Returns a line for each reason why a table cannot be run."""
    if name not in tables:
        return [f"{name}: no such table; expected one of {', '.join(tables)}"]
    files = [data / file for file in re.findall(r"\$DATA/([^\s,]+)", tables[name])]
    return [
        f"{name}: {f} does not exist; set its directory by --data" for f in files if not f.exists()
    ]


def run(commands: str, data: Path) -> int:
    """Runs commands, each printed before; returns the exit code of the first that fails, or 0."""
    directory = Path(sys.executable).parent  # of `python` and `bert-jax`
    with tempfile.TemporaryDirectory() as scratch:
        variables = {
            "PATH": f"{directory}{os.pathsep}{os.environ['PATH']}",
            "DATA": str(data),
            "SCRATCH": scratch,
        }
        command = ["bash", "-eux", "-c", commands]
        return subprocess.run(command, cwd=ROOT, env=os.environ | variables).returncode


def describe_machine() -> str:
    command = ["git", "describe", "--always", "--dirty", "--exclude=*"]
    commit = subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout.strip()
    processors = Path("/proc/cpuinfo")
    text = processors.read_text() if processors.is_file() else ""
    processor = re.search(r"model name\s*: (.*)", text)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    return (
        f"Commit {commit or 'unknown'}, {date.today()}, {os.cpu_count()} cores of"
        f" {processor[1] if processor else platform.processor()}, {memory:.0f} GB, load"
        f" {os.getloadavg()[0]:.1f}; Python {platform.python_version()}, jax {version('jax')}."
    )


if __name__ == "__main__":
    sys.exit(main())
