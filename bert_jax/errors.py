"""Errors that are reported to the user in one line, and their exit codes."""


class BadInput(Exception):
    """A file, key or value that cannot be used. The message is one line that names it; the exit code is 2."""


def one_line(error: BaseException, longest: int = 200) -> str:
    """Returns the type and message of an error in one line, cut to `longest` characters."""
    return " ".join(f"{type(error).__name__}: {error}".split())[:longest]


# Exit code if another process of the run, a device or an address is unreachable: a restart may succeed.
LOST = 76


class Missing(Exception):
    """Another process of the run or an address is unreachable, or another process trains in the workdir.

    A later start may succeed; the exit code is LOST.
    """


class Unfinished(Exception):
    """The machine cannot continue, for example because of a full disk. The next start resumes; the exit code is 1."""
