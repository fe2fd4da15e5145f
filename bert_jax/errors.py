"""The one error that is the user's to mend."""


class BadInput(Exception):
    """A file, key or value that cannot be used: one line that names it; the command exits with 2."""
