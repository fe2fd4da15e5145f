"""The table of all faults as Markdown: written row by row, so that a part of it can be made again."""

import os
import platform
import subprocess
import time
from collections import Counter
from importlib.metadata import version
from pathlib import Path

from faults.world import NOT_RUN, Outcome

COLUMNS = ("name", "fault", "tries", "must", "was", "seconds", "seed", "commit", "date")
HEAD = """# What was done to runs, and what came of it

Made by `bash launch/faults.sh`, not by hand: faults are injected from outside into runs of a small model (width 32,
two layers) on simulated CPU devices, in one process of two devices or two processes of one. Compared bitwise are all
parameters and the optimizer's state at the end, and every line of metrics.jsonl but for its times. A try that has
failed is told in full, and made again by `bash launch/faults.sh --only NAME --seed SEED --try N` (doors: without N).

"""


def write(path: Path, order: list[str], rows: dict[str, str]) -> None:
    """Replaces the rows of the table at `path`, whose other rows stay. rows: {name: line}; order: of all names."""
    rows = read(path) | rows
    lines = [line(COLUMNS), line(["---"] * len(COLUMNS))]
    lines += [rows[name] for name in order if name in rows]
    text = HEAD + f"Last part: {machine()}.\n\n" + "\n".join(lines) + "\n"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def read(path: Path) -> dict[str, str]:
    """{name: line} of a table that write has written."""
    text = path.read_text() if path.exists() else ""
    found = [row for row in text.splitlines() if row.startswith("| ")]
    return {row.split("|")[1].strip(): row for row in found}


def line(cells) -> str:
    return f"| {' | '.join(str(cell) for cell in cells)} |"


def summary(outcomes: list) -> str:
    """How many were as they must be, and of which kinds. outcomes: [Outcome]."""
    good = [outcome.kind for outcome in outcomes if outcome.ok]
    kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(Counter(good).items()))
    text = f"{len(good)} of {len(outcomes)}" + (f": {kinds}" if kinds else "")
    if count := sum(outcome.kind == NOT_RUN for outcome in outcomes):
        text += f"; {count} {NOT_RUN}"
    return text


def is_failure(outcome: Outcome, short: bool) -> bool:
    """What a machine cannot try is missing in the whole table, and only told in a short version."""
    return not outcome.ok and not (short and outcome.kind == NOT_RUN)


def row(name: str, fault: str, must: str, outcomes: list, seconds: float, seed: int, commit: str):
    """The line of one fault. seconds: of all its tries; commit: what was tried."""
    day = time.strftime("%Y-%m-%d", time.gmtime())
    cells = [name, fault, len(outcomes), must, summary(outcomes), round(seconds), seed, commit]
    return line([*cells, day])


def commit(output: Path | None) -> str:
    """The commit that is tried, with a plus where files of it are changed; unknown outside of a repository. The table
    itself, `output`, may be changed: it holds what was tried before."""
    root = Path(__file__).parents[2]

    def git(*arguments):
        return subprocess.run(
            ["git", "-C", root, *arguments], capture_output=True, text=True
        ).stdout

    changed = git("diff", "HEAD", "--name-only").splitlines()
    others = [name for name in changed if not output or root / name != output.resolve()]
    return (git("describe", "--always", "--exclude=*").strip() or "unknown") + "+" * bool(others)


def machine() -> str:
    """Versions, and how many cores."""
    packages = ("jax", "flax", "optax", "orbax-checkpoint", "numpy")
    versions = ", ".join(f"{name} {version(name)}" for name in packages)
    cores = len(os.sched_getaffinity(0))
    return f"Python {platform.python_version()}, {versions}; {cores} CPU cores"
