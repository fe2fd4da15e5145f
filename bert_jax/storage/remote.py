"""Directories in buckets, named by addresses such as gs://bucket/name: object stores through fsspec.

Objects are written and replaced atomically; they cannot be appended to, renamed or locked. The methods of Directory
raise the errors of their library; `explain` turns these into errors of one line.
"""

import logging
import os
import re
from contextlib import contextmanager, suppress
from pathlib import Path

from bert_jax.errors import BadInput, Unavailable, Unfinished, one_line

MAX_MESSAGE = 300  # characters of a library's message
TIMEOUT = 120.0  # seconds until a request fails
# Modules whose errors concern an address or its servers.
LIBRARIES = ("gcsfs", "aiohttp", "google.auth", "google.api_core", "requests", "botocore", "azure")
# TensorStore, and gcsfs for some requests, raise errors of built-in types. Their messages have these words.
UNREACHABLE = re.compile("(UNAVAILABLE|DEADLINE_EXCEEDED|ABORTED|CANCELLED):")
DENIED = re.compile("^(Forbidden|Bad Request): |(PERMISSION_DENIED|UNAUTHENTICATED):")
# HTTP status codes that a retry does not change.
REFUSED = (400, 401, 403, 404)
GOOGLE = ("gs", "gcs")  # both name the same file system of fsspec


def configure() -> None:
    """Sets environment variables before libraries are imported: etils accesses buckets through fsspec instead of
    TensorFlow, and gcsfs uses one API for all types of buckets."""
    os.environ.setdefault("EPATH_USE_TF", "false")
    os.environ.setdefault("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")
    # Its errors are reported in one line; it would also log the stack trace of every retry.
    logging.getLogger("gcsfs").setLevel(logging.CRITICAL)


def is_address(name: str | Path) -> bool:
    """Returns whether a name is an address, such as gs://bucket/name, rather than a path."""
    return bool(re.match(r"[a-z][a-z0-9+.-]*://", str(name)))


def address(name: str) -> str | Path:
    """Parses the name of a directory: returns an address unchanged, anything else as a Path."""
    if not is_address(name):
        return Path(name)
    configure()
    return name


def exists(name: str) -> bool:
    """Returns whether a path or an address exists."""
    if not is_address(name):
        return os.path.exists(name)  # unlike Path.exists, False if it may not be read
    with explain(name):
        directory, file = split_address(name)
        return directory.exists(file)


def split_address(name: str) -> tuple["Directory", str]:
    """Splits the address of a file into its directory and its name."""
    directory, _, file = name.rpartition("/")
    if directory.endswith("/"):
        raise BadInput(f"{name}: names no file")
    return Directory(directory), file


class Directory:
    """A directory in a bucket. Names are relative to it and contain slashes; directories exist only through files."""

    def __init__(self, address: str):
        """Raises BadInput if no installed library can read such addresses."""
        self.address = address.rstrip("/")
        scheme, _, name = address.partition("://")
        if not name.strip("/"):
            raise BadInput(f"{address}: names no bucket")
        configure()
        try:
            import fsspec

            # No cache of listings, since other processes and TensorStore write here too. It is turned off for the whole
            # process, because Orbax creates its own file systems.
            conf = fsspec.config.conf
            for protocol in (scheme, *GOOGLE):
                conf.setdefault(protocol, {})["use_listings_cache"] = False
            for protocol in GOOGLE:
                conf[protocol]["requests_timeout"] = TIMEOUT
            self.files, self.root = fsspec.core.url_to_fs(self.address)
        except (ImportError, ValueError) as error:
            hint = one_line(error, MAX_MESSAGE)
            if scheme in GOOGLE:
                hint = "pip install -c constraints.txt -e '.[gcs]'"
            raise BadInput(f"{address}: cannot read {scheme}:// addresses: {hint}") from None

    def path(self, name: str) -> str:
        return f"{self.root}/{name}"

    def read(self, name: str) -> bytes:
        return self.files.cat_file(self.path(name))

    def write(self, name: str, data: bytes) -> None:
        self.files.pipe_file(self.path(name), data)

    def download(self, name: str, path: Path) -> None:
        """Downloads a file of any size."""
        path.parent.mkdir(parents=True, exist_ok=True)
        self.files.get_file(self.path(name), str(path))

    def upload(self, path: Path, name: str) -> None:
        """Uploads a file of any size."""
        self.files.put_file(str(path), self.path(name))

    def remove(self, name: str) -> None:
        with suppress(FileNotFoundError):
            self.files.rm_file(self.path(name))

    def exists(self, name: str) -> bool:
        return self.files.exists(self.path(name))

    def names(self) -> dict[str, bool]:
        """Returns {name: whether it is a directory} of the entries of this directory."""
        try:
            entries = self.files.ls(self.root, detail=True)
        except FileNotFoundError:
            return {}
        names = {}
        for entry in entries:
            name = entry["name"].rstrip("/").rpartition("/")[2]
            names[name] = entry["type"] == "directory"
        return names

    def tree(self, name: str = "") -> list[str]:
        """Returns the names of all files below this directory, or below its subdirectory `name`."""
        prefix = f"{self.root}/"
        paths = self.files.find(self.path(name).rstrip("/"))
        return sorted(path.removeprefix(prefix) for path in paths if path.startswith(prefix))


@contextmanager
def explain(what: str):
    """Turns library errors within the context into errors of one line that begins with `what`: BadInput if it does not
    exist or access is denied, Unavailable if it is unreachable, otherwise Unfinished."""
    try:
        yield
    except (BadInput, Unavailable, Unfinished):
        raise
    except FileNotFoundError:
        raise BadInput(f"{what}: does not exist, or you may not read it") from None
    except Exception as error:  # of any type, by fsspec and its libraries
        reason = "no answer" if isinstance(error, TimeoutError) else one_line(error, MAX_MESSAGE)
        if is_refused(error):
            raise BadInput(f"{what}: {reason}") from None
        error_type = Unavailable if is_unreachable(error) else Unfinished  # for example a full disk
        raise error_type(f"{what}: {reason}") from None


@contextmanager
def explain_remote(what: str):
    """Turns only errors of the bucket into errors of one line; for code that does other things, too, such as Orbax."""
    try:
        yield
    except Exception as error:
        if is_refused(error) or is_unreachable(error):
            with explain(what):
                raise
        raise


def is_refused(error: Exception) -> bool:
    """Returns whether a retry cannot help: wrong credentials, permissions or names."""
    if DENIED.search(str(error)):
        return True
    is_refusal = "Credentials" in type(error).__name__ or getattr(error, "code", None) in REFUSED
    return is_refusal and comes_from_library(error)


def is_unreachable(error: Exception) -> bool:
    """Returns whether the network or a server failed, so that a later retry may help."""
    if is_refused(error):
        return False
    if isinstance(error, TimeoutError) or UNREACHABLE.search(str(error)):
        return True
    return comes_from_library(error)


def comes_from_library(error: Exception) -> bool:
    """Returns whether a library of LIBRARIES raised the error."""
    return f"{type(error).__module__}.".startswith(tuple(f"{name}." for name in LIBRARIES))


@contextmanager
def naming(copy: Path, name: str):
    """Replaces the path of a local copy in the messages of errors within the context by the name of its original."""
    try:
        yield
    except (BadInput, FloatingPointError, Unavailable, Unfinished) as error:
        raise type(error)(str(error).replace(str(copy), name)) from None
