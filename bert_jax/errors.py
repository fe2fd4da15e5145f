"""The errors that are told in one line."""


class BadInput(Exception):
    """A file, key or value that cannot be used: one line that names it; the command exits with 2."""


def one_line(error: BaseException, longest: int = 200) -> str:
    """What a library has raised, for a message: its kind and its words, cut to `longest` characters."""
    return " ".join(f"{type(error).__name__}: {error}".split())[:longest]


# Exit code of who misses another process of the run, a device or an address: the next start may find them.
LOST = 76


class Missing(Exception):
    """Another process of the run that has not come, an address out of reach, or a workdir in which another process
    trains: the next start may find it otherwise; the command exits with LOST."""


class Unfinished(Exception):
    """Work that the machine has stopped, as a full disk does, and that goes on at the next start; exit code 1."""
