"""Errors that are reported to the user in one line, their exit codes; where signals may be handled, and how a
standard stream is written and silenced."""

import builtins
import contextlib
import os
import sys
import threading


class BadInput(Exception):
    """A file, key or value that cannot be used. The message is one line that names it; the exit code is 2."""


def one_line(error: BaseException, longest: int = 200) -> str:
    """Returns the type and message of an error in one line, cut to `longest` characters."""
    return " ".join(f"{type(error).__name__}: {error}".split())[:longest]


# Exit code if another process of the run, a device or an address is unreachable: a restart may succeed.
LOST = 76


class Unavailable(Exception):
    """A process of the run or an address that is unreachable, or a workdir in which another process trains.

    A later start may succeed; the exit code is LOST.
    """


class Unfinished(Exception):
    """A failure of the machine, for example a full disk. After it is fixed, a start resumes; the exit code is 1."""


def log(text: str) -> None:
    """Prints a line on standard error: standard output has the results alone."""
    print(text, file=sys.stderr, flush=True)


@contextlib.contextmanager
def discarded(stream, number: int):
    """Discards what is written to a standard stream, by C++ libraries too: it replaces the file descriptor."""
    stream.flush()
    saved = os.dup(number)
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, number)
    try:
        yield
    finally:
        stream.flush()
        os.dup2(saved, number)
        os.close(saved)
        os.close(nothing)


def may_handle_signals() -> bool:
    """Returns whether signals may be handled, and end the process: not in a thread, where Python refuses it, and not in
    a notebook, whose process is not the command's."""
    is_main = threading.current_thread() is threading.main_thread()
    return is_main and not hasattr(builtins, "__IPYTHON__")
