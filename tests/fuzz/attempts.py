"""One command on one input, in this process: what came of it, and whether that is right."""

import contextlib
import hashlib
import io
import json
import os
import re
import signal
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
    code: int
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
    oracle: Callable[[Outcome], None]  # raises AssertionError where a success is wrong
    codes: tuple[int, ...] = (0,)  # that are no refusal


class Hang(BaseException):
    """Nothing catches it."""


def check(attempt: Attempt, directory: Path, world: Path) -> None:
    """Raises where it does not end as it must. directory: its own; world: which all share."""
    before, shared = listing(directory), listing(world)
    outcome = run(attempt.arguments, directory)
    if outcome.code == 2:
        *others, last = outcome.err.splitlines()
        assert last.startswith("bert-jax: ") and len(last) < 2000, outcome
        assert not surprises(others) and not outcome.out, outcome
        assert listing(directory) == before, outcome
    else:
        assert outcome.code in attempt.codes, outcome
        assert not surprises(outcome.err.splitlines()), outcome
        attempt.oracle(outcome)
    assert listing(world) == shared


def surprises(lines: list[str]) -> list[str]:
    known = [line for line in lines if line.startswith(PROGRESS)]
    return [line for line in lines if line not in known and not SKIPPED.fullmatch(line)]


def run(arguments: list, directory: Path) -> Outcome:
    def end(number, frame):
        raise Hang

    before = signal.signal(signal.SIGALRM, end)
    signal.alarm(LONGEST)
    # With UTF-8, as a terminal has it.
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors=e) for e in ERRORS)
    try:
        with (
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
            contextlib.chdir(directory),
        ):
            code = main([str(argument) for argument in arguments])
    except SystemExit as error:  # of --help
        code = error.code
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
    for stream in (out, err):
        stream.flush()
    return Outcome(code, *(stream.buffer.getvalue().decode() for stream in (out, err)))


ERRORS = ("strict", "backslashreplace")  # of standard output and standard error


def done(*arguments) -> str:
    """What a command that succeeds says."""
    outcome = run(arguments, Path.cwd())
    assert outcome.code == 0, outcome
    return outcome.out


def listing(directory: Path) -> dict[str, str]:
    """{name: what it is} of all that is below a directory, without rows that are made again."""
    paths = {str(path.relative_to(directory)): path for path in directory.rglob("*")}
    return {name: describe(paths[name]) for name in paths if not name.startswith(CACHE)}


def describe(path: Path) -> str:
    if path.is_symlink():
        return f"link to {os.readlink(path)}"
    if path.is_file():
        return hashlib.sha256(path.read_bytes()).hexdigest()
    return "directory" if path.is_dir() else "special"
