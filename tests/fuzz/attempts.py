"""Runs a command on one input in this process, and checks the outcome."""

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

TIMEOUT = 600  # seconds of a command, of which the slowest compile
# Prefixes of progress lines.
PROGRESS = ("prepare:", "vocabulary:", "store ", "verify:")
SKIPPED = re.compile(r"skipped .*/checkpoints/(\d+): .+")  # a checkpoint that a command skipped
# Files that any command may write into the world: a cache of the rows of batches.
CACHE = "store/index/"


class Outcome(NamedTuple):
    """The exit code and the output of a command."""

    code: int
    out: str
    err: str

    @property
    def values(self):
        """The JSON on standard output, parsed strictly."""
        return json.loads(self.out, parse_constant=lambda name: f"not JSON: {name}")

    @property
    def skipped(self) -> set[int]:
        """The steps of skipped checkpoints."""
        return {int(match[1]) for match in map(SKIPPED.fullmatch, self.err.splitlines()) if match}


class Attempt(NamedTuple):
    """A command to run, and the check of its success."""

    arguments: list[str]
    oracle: Callable[[Outcome], None]  # raises AssertionError for a wrong result
    codes: tuple[int, ...] = (0,)  # exit codes of a success


class Hang(BaseException):
    """A timeout. It is a BaseException, so that no handler catches it."""


def check(attempt: Attempt, directory: Path, world: Path) -> None:
    """Runs an attempt; raises AssertionError or Hang for a wrong outcome.

    directory: that of this attempt. world: shared by all attempts, and must not change.
    """
    before, shared = listing(directory), listing(world)
    outcome = run(attempt.arguments, directory)
    if outcome.code == 2:
        *others, last = outcome.err.splitlines()
        assert last.startswith("bert-jax: ") and len(last) < 2000, outcome
        assert not unexpected(others) and not outcome.out, outcome
        assert listing(directory) == before, outcome
    else:
        assert outcome.code in attempt.codes, outcome
        assert not unexpected(outcome.err.splitlines()), outcome
        attempt.oracle(outcome)
    assert listing(world) == shared


def unexpected(lines: list[str]) -> list[str]:
    """Returns the lines that are neither progress nor a skipped checkpoint."""
    rest = [line for line in lines if not line.startswith(PROGRESS)]
    return [line for line in rest if not SKIPPED.fullmatch(line)]


def run(arguments: list, directory: Path) -> Outcome:
    def end(number, frame):
        raise Hang

    before = signal.signal(signal.SIGALRM, end)
    signal.alarm(TIMEOUT)
    # The streams have UTF-8, like a terminal.
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors=e) for e in ERRORS)
    try:
        with (
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
            contextlib.chdir(directory),
        ):
            code = main([str(argument) for argument in arguments])
    except SystemExit as error:  # raised by --help
        code = error.code
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
    for stream in (out, err):
        stream.flush()
    return Outcome(code, *(stream.buffer.getvalue().decode() for stream in (out, err)))


ERRORS = ("strict", "backslashreplace")  # of standard output and standard error


def done(*arguments) -> str:
    """Runs a command, which succeeds; returns its standard output."""
    outcome = run(arguments, Path.cwd())
    assert outcome.code == 0, outcome
    return outcome.out


def listing(directory: Path) -> dict[str, str]:
    """Returns {path: hash of a file, or its type} of all paths below a directory, without the cache of rows."""
    paths = {str(path.relative_to(directory)): path for path in directory.rglob("*")}
    return {name: describe(paths[name]) for name in paths if not name.startswith(CACHE)}


def describe(path: Path) -> str:
    """Returns the hash of a file, or the type of another path."""
    if path.is_symlink():
        return f"link to {os.readlink(path)}"
    if path.is_file():
        return hashlib.sha256(path.read_bytes()).hexdigest()
    return "directory" if path.is_dir() else "special"
