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
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from bert_jax.main import main

LONGEST = 20  # seconds of a try
# How lines of progress begin, and what one says of a directory that cannot be written.
PROGRESS = ("prepare:", "vocabulary:", "store ", "verify:")
ELSEWHERE = "row indexes go to"
PANIC = re.compile(
    r"\nthread '.*' .*panicked at .*\n(.*\n)note: run with .*"
)  # what a library in Rust says


class Attempt(NamedTuple):
    arguments: list[str]
    # (exit code, standard output) -> what is wrong with a success, or an empty text
    oracle: Callable[[int, str], str]
    note: str  # what was done, for whoever reads of a failure
    codes: tuple[int, ...] = (0,)  # that are no refusal


class Hang(BaseException):
    """Nothing catches it."""


class Outcome(NamedTuple):
    code: int | None  # None: a traceback
    out: str
    err: str


def judge(attempt: Attempt, directory: Path) -> str:
    """What is wrong with how an attempt ends, or an empty text."""
    before = listing(directory)
    outcome = run(attempt.arguments, directory)
    if outcome.code is None:
        return outcome.err
    if outcome.code == 2:
        if listing(directory) != before:
            changed = set(listing(directory).items()) ^ set(before.items())
            return f"the directory has changed: {sorted(changed)}"
        return refusal(outcome)
    if outcome.code not in attempt.codes:
        return f"exit code {outcome.code}: {outcome.err[-500:]}"
    unexpected = surprises(outcome.err.splitlines())
    if unexpected:
        return f"said {unexpected}"
    try:
        return attempt.oracle(outcome.code, outcome.out)
    except Exception as error:  # it cannot read what was taken for right
        return f"a success that the oracle cannot judge: {type(error).__name__}: {error}"


def refusal(outcome: Outcome) -> str:
    *others, last = PANIC.sub("", f"\n{outcome.err}").strip().splitlines() or [""]
    if outcome.out or not last.startswith("bert-jax: ") or len(last) > 2000 or len(last) < 20:
        return f"refused with {outcome.out[:200]!r} and {outcome.err[:500]!r}"
    unexpected = surprises(others)
    return f"more than one line: {unexpected}" if unexpected else ""


def surprises(lines: list[str]) -> list[str]:
    return [line for line in lines if not line.startswith(PROGRESS) and ELSEWHERE not in line]


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


def describe(path: Path) -> str:
    if path.is_symlink():
        return f"link to {os.readlink(path)}"
    if path.is_file():
        return hashlib.sha256(path.read_bytes()).hexdigest()
    return "directory" if path.is_dir() else "special"


def parsed(out: str):
    """The JSON of a command's standard output, strictly."""
    return json.loads(out, parse_constant=lambda name: f"not JSON: {name}")
