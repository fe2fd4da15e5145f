"""One command on one input, in this process: what came of it, and whether that is right."""

import contextlib
import hashlib
import io
import json
import os
import re
import signal
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from bert_jax.cli import main

LONGEST = 30  # seconds of a try
# How lines of progress begin.
PROGRESS = ("prepare:", "vocabulary:", "store ", "verify:")
SKIPPED = re.compile(r"skipped .*/checkpoints/(\d+): .+")  # a checkpoint, by the command that reads
# What any command may leave in the world: rows that batches are made of.
CACHE = "store/index/"


class Outcome(NamedTuple):
    code: int | None  # None: a traceback
    out: str
    err: str

    @property
    def values(self):
        """The JSON of standard output, strictly."""
        return json.loads(self.out, parse_constant=lambda name: f"not JSON: {name}")

    @property
    def skipped(self) -> set[int]:
        """The steps of checkpoints that were passed over."""
        return {int(match[1]) for match in map(SKIPPED.fullmatch, self.err.splitlines()) if match}


class Attempt(NamedTuple):
    arguments: list[str]
    oracle: Callable[[Outcome], str]  # what is wrong with a success, or an empty text
    note: str  # what was done, for whoever reads of a failure
    codes: tuple[int, ...] = (0,)  # that are no refusal


class Verdict(NamedTuple):
    refused: bool
    problem: str  # empty: it ended as it must


class Hang(BaseException):
    """Nothing catches it."""


def judge(attempt: Attempt, directory: Path, world: Path) -> Verdict:
    """How an attempt ends, and what is wrong with that. directory: its own; world: which all share."""
    before, shared = listing(directory), listing(world)
    outcome = run(attempt.arguments, directory)
    refused = outcome.code == 2
    if outcome.code is None:
        problem = outcome.err
    elif refused:
        problem = refusal(outcome) or changes("the directory", before, listing(directory))
    else:
        problem = success(attempt, outcome)
    return Verdict(refused, problem or changes("the world", shared, listing(world)))


def success(attempt: Attempt, outcome: Outcome) -> str:
    """What is wrong with it, or an empty text."""
    unexpected = surprises(outcome.err.splitlines())
    if outcome.code not in attempt.codes or unexpected:
        return f"exit code {outcome.code}: {outcome.err[-500:]}"
    try:
        return attempt.oracle(outcome)
    except Exception as error:  # it cannot read what was taken for right
        return f"a success that the oracle cannot judge: {type(error).__name__}: {error}"


def refusal(outcome: Outcome) -> str:
    *others, last = outcome.err.splitlines() or [""]
    is_line = last.startswith("bert-jax: ") and len(last) < 2000 and not surprises(others)
    is_right = is_line and not outcome.out
    return "" if is_right else f"refused with {outcome.out[:200]!r} and {outcome.err[:500]!r}"


def surprises(lines: list[str]) -> list[str]:
    known = [line for line in lines if line.startswith(PROGRESS)]
    return [line for line in lines if line not in known and not SKIPPED.fullmatch(line)]


def changes(what: str, before: dict, now: dict) -> str:
    names = sorted(name for name in before | now if before.get(name) != now.get(name))
    names = [name for name in names if not name.startswith(CACHE)]
    return f"{what} has changed: {names[:20]}" if names else ""


def run(arguments: list[str], directory: Path) -> Outcome:
    def end(number, frame):
        raise Hang

    before = signal.signal(signal.SIGALRM, end)
    signal.alarm(LONGEST)
    code = failure = None
    try:
        with captured() as (out, err), contextlib.chdir(directory):
            try:
                code = main([str(argument) for argument in arguments])
            except SystemExit as error:  # of --help
                code = error.code
            except BaseException:
                failure = traceback.format_exc()
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
    return Outcome(code, text_of(out), failure or text_of(err))


@contextlib.contextmanager
def captured():
    """Yields standard output and standard error, each with UTF-8 as a terminal has it."""
    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    err = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors="backslashreplace")
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        yield out, err


def text_of(stream: io.TextIOWrapper) -> str:
    stream.flush()
    return stream.buffer.getvalue().decode()


def listing(directory: Path) -> dict[str, str]:
    """{name: what it is} of all that is below a directory."""
    return {str(path.relative_to(directory)): describe(path) for path in directory.rglob("*")}


def describe(path: Path) -> str:
    if path.is_symlink():
        return f"link to {os.readlink(path)}"
    if path.is_file():
        return hashlib.sha256(path.read_bytes()).hexdigest()
    return "directory" if path.is_dir() else "special"
