"""Directories at an address, as gs://bucket/name: object stores, through fsspec, with no TensorFlow.

An object is written whole or not at all, and replaced in one go; nothing is appended to, renamed or locked. What a
method of Place meets it raises as its library does; within `reached` that is told in a line.
"""

import contextlib
import logging
import os
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from bert_jax.errors import BadInput, Missing, Unfinished, one_line

ADDRESS = re.compile(r"[a-z][a-z0-9+.-]*://")
LONGEST = 300  # characters of what a library says
PART = 1 << 25  # bytes of an object that are read at a time
TIMEOUT = 120.0  # seconds of a request, or it is one that no one answers
PATIENCE = 30.0  # seconds of somebody who asks for one small file, with all tries
TOGETHER = 8  # parts, and small objects
# The modules of errors that are of an address and its servers.
LIBRARIES = (
    "gcsfs.",
    "aiohttp.",
    "google.auth.",
    "google.api_core.",
    "requests.",
    "botocore.",
    "azure.",
)
# How TensorStore's errors begin where the same is so.
UNREACHABLE = ("UNAVAILABLE", "DEADLINE_EXCEEDED", "ABORTED", "CANCELLED")
# Of HTTP: what asking again does not change.
REFUSED = (400, 401, 403, 404)
ALIASES = {"gs": ("gcs",), "gcs": ("gs",)}  # names of one file system of fsspec's
# What fsspec asks for, by the beginning of an address.
EXTRAS = {"gs": "pip install 'bert_jax[gcs]'", "gcs": "pip install 'bert_jax[gcs]'"}


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
        return Path(name).exists()
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
            for protocol in {kind, *ALIASES.get(kind, ())}:
                settings = fsspec.config.conf.setdefault(protocol, {})
                settings["use_listings_cache"] = False
                if kind in ALIASES:
                    settings["requests_timeout"] = TIMEOUT
            found = fsspec.core.url_to_fs(self.address)
        except (ImportError, ValueError) as error:
            hint = EXTRAS.get(kind, one_line(error, LONGEST))
            raise BadInput(f"{address}: addresses {kind}:// cannot be read here: {hint}") from None
        self.files, self.root = found
        self.is_google = kind in ALIASES

    def path(self, name: str) -> str:
        return f"{self.root}/{name}"

    def read(self, name: str, seconds: float = 0) -> bytes:
        """seconds: in which it is to be had, however often it is asked for; 0 is any number."""
        limit = {"timeout": seconds} if seconds and self.files.async_impl else {}
        return self.files.cat_file(self.path(name), **limit)

    def write(self, name: str, data: bytes) -> None:
        self.files.pipe_file(self.path(name), data)

    def look(self, name: str) -> tuple[bytes, str]:
        """What an object is, and its version: its generation in Cloud Storage, the same bytes again elsewhere."""
        if not self.is_google:
            data = self.read(name)
            return data, data.decode(errors="replace")
        headers, data = self.files.call("GET", self.files.url(self.path(name)))
        return data, headers["x-goog-generation"]

    def replace(self, name: str, data: bytes, version: str) -> str:
        """Writes an object that is of this version, or not there where that is empty: of several that try, one is
        told the new version, and the others an empty one. Elsewhere than in Cloud Storage only what is not there is
        written in one go with the look at it."""
        try:
            if self.is_google:
                bucket, key, _ = self.files.split_path(self.path(name))
                place = f"{self.files._location}/upload/storage/v1/b/{bucket}/o"
                asked = {"name": key, "uploadType": "media", "ifGenerationMatch": version or "0"}
                return self.files.call("POST", place, data=data, json_out=True, **asked)[
                    "generation"
                ]
            if version and self.look(name)[1] != version:
                return ""
            how = {} if version else {"mode": "create"}
            self.files.pipe_file(self.path(name), data, **how)
        except (FileExistsError, FileNotFoundError):
            return ""
        return data.decode()

    def remove(self, name: str, version: str = "") -> None:
        """Where a version is given, only an object that is of it."""
        with contextlib.suppress(FileExistsError, FileNotFoundError):
            if version and self.is_google:
                bucket, key, _ = self.files.split_path(self.path(name))
                self.files.call("DELETE", "b/{}/o/{}", bucket, key, ifGenerationMatch=version)
            elif not version or self.look(name)[1] == version:
                self.files.rm_file(self.path(name))

    def exists(self, name: str) -> bool:
        return self.files.exists(self.path(name))

    def names(self) -> dict[str, bool]:
        """{name directly in the directory: whether it is a directory}."""
        try:
            found = self.files.ls(self.root, detail=True)
        except FileNotFoundError:
            return {}
        return {
            entry["name"].rstrip("/").rpartition("/")[2]: entry["type"] == "directory"
            for entry in found
        }

    def tree(self, name: str = "") -> list[str]:
        """The names of all files in it, or in one of its directories, and in those below."""
        start = f"{self.root}/"
        found = self.files.find(self.path(name).rstrip("/"))
        return sorted(path.removeprefix(start) for path in found if path.startswith(start))

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
    kind = type(error)
    return str(error).startswith(("Forbidden: ", "Bad Request: ")) or (
        kind.__module__.startswith(LIBRARIES)
        and (getattr(error, "code", None) in REFUSED or "Credentials" in kind.__name__)
    )


def is_out_of_reach(error: Exception) -> bool:
    """Whether it may be otherwise soon: the network, a server."""
    known = type(error).__module__.startswith(LIBRARIES) and not is_refused(error)
    return known or isinstance(error, TimeoutError) or str(error).startswith(UNREACHABLE)


@contextlib.contextmanager
def naming(place: Path, name: str) -> Iterator[None]:
    """Within it errors that name a copy at `place` name what it is a copy of."""
    try:
        yield
    except (BadInput, FloatingPointError, Missing, Unfinished) as error:
        raise type(error)(str(error).replace(str(place), name)) from None
