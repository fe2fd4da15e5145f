"""Directories at an address, as gs://bucket/name: object stores, through fsspec, with no TensorFlow.

An object is written whole or not at all, and replaced in one go; nothing is appended to, renamed or locked. What a
method of Place meets it raises as its library does; within `reached` that is told in a line.
"""

import contextlib
import os
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from bert_jax.errors import BadInput, Unfinished, one_line

ADDRESS = re.compile(r"[a-z][a-z0-9+.-]*://")
LONGEST = 300  # characters of what a library says
PART = 1 << 25  # bytes of an object that are read at a time
TOGETHER = 8  # parts, and small objects
# Of HTTP: what asking again does not change.
REFUSED = (400, 401, 403, 404)
# What fsspec asks for, by the beginning of an address.
EXTRAS = {"gs": "pip install 'bert_jax[gcs]'", "gcs": "pip install 'bert_jax[gcs]'"}


def is_address(name: str | Path) -> bool:
    return bool(ADDRESS.match(str(name)))


def address(name: str) -> str | Path:
    """What a name of a directory names: an address, as it is, or a path."""
    return name if is_address(name) else Path(name)


class Place:
    """A directory at an address. Names are relative to it, with slashes; a directory is there while a name in it is."""

    def __init__(self, address: str):
        """Raises BadInput where nothing here can read such addresses."""
        self.address = address.rstrip("/")
        kind, _, name = address.partition("://")
        if not name.strip("/"):
            raise BadInput(f"{address}: names no bucket")
        # Buckets of other kinds (zonal, hierarchical) are used as all others are: by this API.
        os.environ.setdefault("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")
        try:
            import fsspec

            # Other processes write here too: what was listed once is not what is there.
            found = fsspec.core.url_to_fs(self.address, use_listings_cache=False)
        except (ImportError, ValueError) as error:
            hint = EXTRAS.get(kind, one_line(error, LONGEST))
            raise BadInput(f"{address}: addresses {kind}:// cannot be read here: {hint}") from None
        self.files, self.root = found

    def path(self, name: str) -> str:
        return f"{self.root}/{name}"

    def read(self, name: str) -> bytes:
        return self.files.cat_file(self.path(name))

    def write(self, name: str, data: bytes) -> None:
        self.files.pipe_file(self.path(name), data)

    def create(self, name: str, data: bytes) -> bool:
        """Whether it was not there, and now is: of several processes that try, one is told so."""
        try:
            self.files.pipe_file(self.path(name), data, mode="create")
        except FileExistsError:
            return False
        return True

    def remove(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self.files.rm_file(self.path(name))

    def exists(self, name: str) -> bool:
        return self.files.exists(self.path(name))

    def names(self, below: str = "") -> list[str]:
        """The names directly in the directory, or in one of its own."""
        try:
            found = self.files.ls(self.path(below).rstrip("/"), detail=False)
        except FileNotFoundError:
            return []
        return sorted({path.rstrip("/").rpartition("/")[2] for path in found})

    def tree(self, below: str = "") -> list[str]:
        """All names in the directory and in those below, or in one of its own."""
        start = len(self.root) + 1
        return sorted(path[start:] for path in self.files.find(self.path(below).rstrip("/")))

    def parts(self, name: str, size: int) -> Iterator[bytes]:
        """The first `size` bytes of an object, in order, several parts read at a time."""
        path = self.path(name)
        starts = range(0, size, PART)
        with ThreadPoolExecutor(TOGETHER) as pool:
            for first in range(0, len(starts), TOGETHER):
                yield from pool.map(
                    lambda start: self.files.cat_file(path, start, min(start + PART, size)),
                    starts[first : first + TOGETHER],
                )

    def upload(self, path: Path, name: str) -> None:
        """A file, of any size."""
        self.files.put_file(str(path), self.path(name))


@contextlib.contextmanager
def reached(what: str) -> Iterator[None]:
    """What fails within is told in a line that begins with `what`: BadInput where it is not there or not allowed,
    Unfinished where it cannot be reached now."""
    try:
        yield
    except (BadInput, Unfinished):
        raise
    except Exception as error:  # of fsspec and of what it asks: they raise what they like
        if isinstance(error, FileNotFoundError):
            raise BadInput(f"{what}: not there, or no right to see it") from None
        kind = BadInput if is_refused(error) else Unfinished
        raise kind(f"{what}: {one_line(error, LONGEST)}") from None


def is_refused(error: Exception) -> bool:
    """Whether it would be so again: credentials, rights, names."""
    library = type(error).__module__.partition(".")[0]
    return (
        isinstance(error, FileNotFoundError | PermissionError)
        or str(error).startswith(("Forbidden", "Bad Request"))
        or getattr(error, "code", None) in REFUSED
        or (library == "google" and "Credentials" in type(error).__name__)
    )


@contextlib.contextmanager
def naming(place: Path, name: str) -> Iterator[None]:
    """Within it errors that name a copy at `place` name what it is a copy of."""
    try:
        yield
    except (BadInput, Unfinished) as error:
        raise type(error)(str(error).replace(str(place), name)) from None
