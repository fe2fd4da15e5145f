"""The errors that are told in one line."""


class BadInput(Exception):
    """A file, key or value that cannot be used: one line that names it; the command exits with 2."""


class Unfinished(Exception):
    """Work that the machine has stopped, as a full disk does, and that goes on at the next start; exit code 1."""
