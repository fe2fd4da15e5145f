"""Reading whole files that others wrote: a pipe or a device in the place of one may never answer, or never end."""

import errno
import os
import stat
from pathlib import Path


def check(path: str | Path) -> Path:
    """The path; OSError where something lies there that is no regular file, as a link to one is."""
    path = Path(path)
    mode = os.stat(path).st_mode
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return path


def text(path: str | Path, errors: str = "strict") -> str:
    """A file of UTF-8. OSError where it cannot be read, UnicodeDecodeError (a ValueError) where it is none."""
    return check(path).read_text(encoding="utf-8", errors=errors)


def content(path: str | Path) -> bytes:
    return check(path).read_bytes()
