"""One command on one input, in this process: what came of it, and whether that is right."""

import contextlib
import hashlib
import io
import json
import os
import re
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from bert_jax.cli import main

LONGEST = 30  # seconds of a try
STUCK = 3 * LONGEST  # seconds after which one is killed that is stuck in C
# How lines of progress begin, and what one says of a directory that cannot be written.
PROGRESS = ("prepare:", "vocabulary:", "store ", "verify:", "benchmark:")
ELSEWHERE = "row indexes go to"
SKIPPED = re.compile(r"skipped .*/checkpoints/(\d+): .+")  # a checkpoint, by the command that reads
# What a library in Rust says.
PANIC = re.compile(r"\nthread '.*' .*panicked at .*\n(.*\n)note: run with .*")
# What a success may leave in the world: rows that other batches are made of.
CACHE = "store/index/"


class Attempt(NamedTuple):
    arguments: list[str]
    # (exit code, standard output, standard error) -> what is wrong with a success, or an empty text
    oracle: Callable[[int, str, str], str]
    note: str  # what was done, for whoever reads of a failure
    codes: tuple[int, ...] = (0,)  # that are no refusal


class Hang(BaseException):
    """Nothing catches it."""


class Outcome(NamedTuple):
    code: int | None  # None: a traceback
    out: str
    err: str


class Verdict(NamedTuple):
    refused: bool
    problem: str  # empty: it ended as it must


def judge(attempt: Attempt, directory: Path, world: Path) -> Verdict:
    """How an attempt ends, and what is wrong with that. directory: its own; world: which all share."""
    before, shared, started = listing(directory), stamps(world), time.monotonic()
    outcome = run(attempt.arguments, directory)
    seconds = time.monotonic() - started
    refused = outcome.code == 2
    if outcome.code is None:
        problem = outcome.err
    elif seconds > LONGEST:  # something has caught what ends hangs
        problem = f"took {seconds:.0f} s"
    elif refused:
        problem = refusal(outcome) or changes("the directory", before, listing(directory))
    else:
        problem = success(attempt, outcome)
    now = stamps(world)
    if not refused:
        now = {name: now[name] for name in now if name in shared or not name.startswith(CACHE)}
    return Verdict(refused, problem or changes("the world", shared, now))


def success(attempt: Attempt, outcome: Outcome) -> str:
    """What is wrong with it, or an empty text."""
    if outcome.code not in attempt.codes:
        return f"exit code {outcome.code}: {outcome.err[-500:]}"
    unexpected = surprises(outcome.err.splitlines())
    if unexpected:
        return f"said {unexpected}"
    try:
        return attempt.oracle(*outcome)
    except Exception as error:  # it cannot read what was taken for right
        return f"a success that the oracle cannot judge: {type(error).__name__}: {error}"


def changes(what: str, before: dict, now: dict) -> str:
    names = sorted({name for name in before | now if before.get(name) != now.get(name)})
    return f"{what} has changed: {names[:20]}" if names else ""


def refusal(outcome: Outcome) -> str:
    *others, last = PANIC.sub("", f"\n{outcome.err}").strip().splitlines() or [""]
    if outcome.out or not last.startswith("bert-jax: ") or len(last) > 2000 or len(last) < 20:
        return f"refused with {outcome.out[:200]!r} and {outcome.err[:500]!r}"
    unexpected = surprises(others)
    return f"more than one line: {unexpected}" if unexpected else ""


def surprises(lines: list[str]) -> list[str]:
    return [
        line
        for line in lines
        if not line.startswith(PROGRESS) and ELSEWHERE not in line and not SKIPPED.fullmatch(line)
    ]


def skipped(err: str) -> set[int]:
    """The steps of checkpoints that were passed over."""
    return {int(match[1]) for match in map(SKIPPED.fullmatch, err.splitlines()) if match}


def run(arguments: list[str], directory: Path) -> Outcome:
    def end(number, frame):
        raise Hang

    before = signal.signal(signal.SIGALRM, end)
    signal.alarm(LONGEST)
    reason = ""
    try:
        with captured() as streams, contextlib.chdir(directory):
            try:
                code = main(arguments)
            except SystemExit as error:  # of --help
                code = error.code
            except Hang:
                code, reason = None, f"hung for {LONGEST} s"
            except BaseException:
                code, reason = None, traceback.format_exc()
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
    out, err = (stream.decode(errors="backslashreplace") for stream in streams)
    return Outcome(code, out, reason or err)


@contextlib.contextmanager
def captured():
    """Yields a list that has, at the end, all bytes of standard output and error, also those of libraries in C++."""
    result, before = [], (sys.stdout, sys.stderr)
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        kept = os.dup(1), os.dup(2)
        for stream in before:
            stream.flush()
        os.dup2(out.fileno(), 1)
        os.dup2(err.fileno(), 2)
        sys.stdout = io.TextIOWrapper(open(os.dup(1), "wb"), encoding="utf-8")
        sys.stderr = io.TextIOWrapper(
            open(os.dup(2), "wb"), encoding="utf-8", errors="backslashreplace"
        )
        try:
            yield result
        finally:
            for stream in (sys.stdout, sys.stderr):
                stream.close()
            sys.stdout, sys.stderr = before
            for number, copy in enumerate(kept, 1):
                os.dup2(copy, number)
                os.close(copy)
            for file in (out, err):
                file.seek(0)
                result.append(file.read())


def listing(directory: Path) -> dict[str, str]:
    """{name: what it is} of all that is below a directory."""
    return {str(path.relative_to(directory)): describe(path) for path in directory.rglob("*")}


def stamps(directory: Path) -> dict[str, tuple]:
    """{name: (kind, bytes, when it was changed)} of all that is below a directory: cheaper than `listing`."""
    found = {}
    for path in directory.rglob("*"):
        known = path.lstat()
        when = 0 if path.is_dir() else known.st_mtime_ns  # of a directory its entries count
        found[str(path.relative_to(directory))] = known.st_mode, known.st_size, when
    return found


def describe(path: Path) -> str:
    if path.is_symlink():
        return f"link to {os.readlink(path)}"
    if path.is_file():
        return hashlib.sha256(path.read_bytes()).hexdigest()
    return "directory" if path.is_dir() else "special"


def parsed(out: str):
    """The JSON of a command's standard output, strictly."""
    return json.loads(out, parse_constant=lambda name: f"not JSON: {name}")
