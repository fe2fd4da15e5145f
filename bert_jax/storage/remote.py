"""Directories at an address, as gs://bucket/name: object stores, through fsspec, with no TensorFlow.

An object is written whole or not at all, and replaced in one go; nothing is appended to, renamed or locked. What a
method of Place meets it raises as its library does; within `reached` that is told in a line.
"""

import contextlib
import logging
import os
import re
from collections.abc import Iterator
from pathlib import Path

from bert_jax.errors import BadInput, Missing, Unfinished, one_line

ADDRESS = re.compile(r"[a-z][a-z0-9+.-]*://")
LONGEST = 300  # characters of what a library says
TIMEOUT = 120.0  # seconds of a request, or it is one that no one answers
# The modules of errors that are of an address and its servers.
LIBRARIES = ("gcsfs", "aiohttp", "google.auth", "google.api_core", "requests", "botocore", "azure")
# In TensorStore's errors, where the same is so.
UNREACHABLE = re.compile("(UNAVAILABLE|DEADLINE_EXCEEDED|ABORTED|CANCELLED):")
DENIED = re.compile("^(Forbidden|Bad Request): |(PERMISSION_DENIED|UNAUTHENTICATED):")
# Of HTTP: what asking again does not change.
REFUSED = (400, 401, 403, 404)
GOOGLE = ("gs", "gcs")  # names of one file system of fsspec's


def settle() -> None:
    """Has libraries that are imported after this reach addresses the one way that is tested: through fsspec, without
    TensorFlow, and buckets of all kinds (zonal, hierarchical) by the same API."""
    os.environ.setdefault("EPATH_USE_TF", "false")
    os.environ.setdefault("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")
    # What it raises is told in a line; it would add the stacks of all its tries.
    logging.getLogger("gcsfs").setLevel(logging.CRITICAL)


def is_address(name: str | Path) -> bool:
    return bool(ADDRESS.match(str(name)))


def address(name: str) -> str | Path:
    """What a name of a directory names: an address, as it is, or a path."""
    if not is_address(name):
        return Path(name)
    settle()
    return name


def exists(name: str) -> bool:
    """Whether something lies at a path or an address."""
    if not is_address(name):
        return os.path.exists(name)  # not an error where it cannot be looked at
    with reached(name):
        place, last = parted(name)
        return place.exists(last)


def parted(name: str) -> tuple["Place", str]:
    """The directory of a file at an address, and its name there."""
    place, _, last = name.rpartition("/")
    if place.endswith("/"):
        raise BadInput(f"{name}: names no file")
    return Place(place), last


class Place:
    """A directory at an address. Names are relative to it, with slashes; a directory is there while a name in it is."""

    def __init__(self, address: str):
        """Raises BadInput where nothing here can read such addresses."""
        self.address = address.rstrip("/")
        kind, _, name = address.partition("://")
        if not name.strip("/"):
            raise BadInput(f"{address}: names no bucket")
        settle()
        try:
            import fsspec

            # Other processes write here too, and TensorStore: what was listed once is not what is there. Of this kind
            # in all of this process, as Orbax has file systems of its own.
            known = fsspec.config.conf
            for protocol in (kind, *GOOGLE):
                known.setdefault(protocol, {})["use_listings_cache"] = False
            for protocol in GOOGLE:
                known[protocol]["requests_timeout"] = TIMEOUT
            self.files, self.root = fsspec.core.url_to_fs(self.address)
        except (ImportError, ValueError) as error:
            extra = "pip install 'bert_jax[gcs]'"
            hint = extra if kind in GOOGLE else one_line(error, LONGEST)
            raise BadInput(f"{address}: addresses {kind}:// cannot be read here: {hint}") from None

    def path(self, name: str) -> str:
        return f"{self.root}/{name}"

    def read(self, name: str) -> bytes:
        return self.files.cat_file(self.path(name))

    def write(self, name: str, data: bytes) -> None:
        self.files.pipe_file(self.path(name), data)

    def download(self, name: str, path: Path) -> None:
        """A file, of any size."""
        path.parent.mkdir(parents=True, exist_ok=True)
        self.files.get_file(self.path(name), str(path))

    def upload(self, path: Path, name: str) -> None:
        """A file, of any size."""
        self.files.put_file(str(path), self.path(name))

    def remove(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self.files.rm_file(self.path(name))

    def exists(self, name: str) -> bool:
        return self.files.exists(self.path(name))

    def names(self) -> dict[str, bool]:
        """{name directly in the directory: whether it is a directory}."""
        try:
            found = self.files.ls(self.root, detail=True)
        except FileNotFoundError:
            return {}
        last = {entry["name"].rstrip("/").rpartition("/")[2]: entry for entry in found}
        return {name: entry["type"] == "directory" for name, entry in last.items()}

    def tree(self, name: str = "") -> list[str]:
        """The names of all files in it, or in one of its directories, and in those below."""
        start = f"{self.root}/"
        found = self.files.find(self.path(name).rstrip("/"))
        return sorted(path.removeprefix(start) for path in found if path.startswith(start))


@contextlib.contextmanager
def reached(what: str) -> Iterator[None]:
    """What fails within is told in a line that begins with `what`: BadInput where it is not there or not allowed,
    Missing where it cannot be reached now."""
    try:
        yield
    except (BadInput, Missing, Unfinished):
        raise
    except Exception as error:  # of fsspec and of what it asks: they raise what they like
        if isinstance(error, FileNotFoundError):
            raise BadInput(f"{what}: not there, or no right to see it") from None
        reason = "no answer" if isinstance(error, TimeoutError) else one_line(error, LONGEST)
        if is_refused(error):
            raise BadInput(f"{what}: {reason}") from None
        kind = Missing if is_out_of_reach(error) else Unfinished  # as a disk that is full
        raise kind(f"{what}: {reason}") from None


@contextlib.contextmanager
def told(what: str) -> Iterator[None]:
    """The same for what asks an address among other things, by epath or Orbax: only what the address has done."""
    try:
        yield
    except Exception as error:
        if not (is_refused(error) or is_out_of_reach(error)):
            raise
        with reached(what):
            raise


def is_refused(error: Exception) -> bool:
    """Whether it would be so again: credentials, rights, names."""
    named = "Credentials" in type(error).__name__ or getattr(error, "code", None) in REFUSED
    return bool(is_of_library(error) and named or DENIED.search(str(error)))


def is_out_of_reach(error: Exception) -> bool:
    """Whether it may be otherwise soon: the network, a server."""
    known = is_of_library(error) or isinstance(error, TimeoutError)
    return not is_refused(error) and bool(known or UNREACHABLE.search(str(error)))


def is_of_library(error: Exception) -> bool:
    return f"{type(error).__module__}.".startswith(tuple(f"{name}." for name in LIBRARIES))


@contextlib.contextmanager
def naming(place: Path, name: str) -> Iterator[None]:
    """Within it errors that name a copy at `place` name what it is a copy of."""
    try:
        yield
    except (BadInput, FloatingPointError, Missing, Unfinished) as error:
        raise type(error)(str(error).replace(str(place), name)) from None
