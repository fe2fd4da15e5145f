"""Stores, saved batches and vocabularies at an address, as gs://bucket/store: downloaded once a host, and read from its
disk.

    $XDG_CACHE_HOME/bert_jax/stores/DIGEST/     a copy, by the SHA-256 of its manifest: never that of an older store
    .../stores/.DIGEST.lock                     held by the process that downloads; others of this host wait for it
    .../files/DIGEST/NAME                       a vocabulary, by its own SHA-256

A file gets its name once its bytes are those that the manifest says. All of it may be deleted when no run reads it.
"""

import contextlib
import fcntl
import hashlib
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from bert_jax.data import store as stores
from bert_jax.errors import BadInput
from bert_jax.storage import atomic, checksums, remote

MANIFEST = "manifest.json"


def cache() -> Path:
    """Where what can be had again is kept on this host; it begins with ~ where the home is not known either."""
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "bert_jax"


def directory(name: str = "stores") -> Path:
    """Of the copies; made where it is not there."""
    try:
        path = cache().expanduser() / name
    except RuntimeError as error:  # a user without a home
        raise BadInput(f"{cache()}: {error}; set XDG_CACHE_HOME") from None
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.mkdir(mode=0o700, exist_ok=True)
    return path


def absolute(name: str) -> str:
    """A name that means the same in any directory; an address does, and so does no name."""
    return str(Path(name).absolute()) if name and not remote.is_address(name) else name


def is_there(name: str) -> bool:
    """Whether a whole store lies at a path or an address: the manifest is the last that is written."""
    return remote.exists(f"{name.rstrip('/')}/{MANIFEST}")


def local(name: str | Path, *, hashes: bool = False, read: Callable = stores.read_manifest) -> Path:
    """The directory of what is named: a path as it is; the copy of what lies at an address, of which is downloaded what
    is missing, has another size or, with `hashes`, was altered.

    read: (directory) -> its manifest; raises BadInput. So does this, where nothing whole is at the address.
    """
    with copied(name) as (source, place):
        for file, known in read(place)["files"].items() if source else ():
            if checksums.check_file(place, file, known, hashes):
                fetch(source, file, known, place)
    return place


def file(name: str) -> Path:
    """A file as it is; the copy of one at an address, of which another content is another copy."""
    if not remote.is_address(name):
        return Path(name)
    with remote.explain(name):
        place, last = remote.split_address(name)
        data = place.read(last)
    path = directory("files") / digest(data) / last
    path.parent.mkdir(exist_ok=True)
    with atomic.file(path) as opened:
        opened.write(data)
    return path


def manifest(name: str) -> dict:
    """Of the store at a path or an address, of which nothing else is downloaded. Raises BadInput."""
    with copied(name) as (_, place):
        return stores.read_manifest(place)


@contextlib.contextmanager
def copied(name: Path | str) -> Iterator[tuple[remote.Directory | None, Path]]:
    """What lies at an address, and the directory of its copy, in which the manifest is and no other process writes; of
    a path nothing, and itself."""
    if not remote.is_address(name):
        yield None, Path(name)
        return
    source = remote.Directory(name)
    with remote.explain(f"{name}/{MANIFEST}"):
        text = source.read(MANIFEST)
    place = directory() / digest(text)
    place.mkdir(exist_ok=True)
    with remote.naming(place, name), open(place.with_name(f".{place.name}.lock"), "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        path = place / MANIFEST
        if not path.exists() or path.read_bytes() != text:
            with atomic.file(path) as opened:
                opened.write(text)
        yield source, place


def digest(text: bytes) -> str:
    return hashlib.sha256(text).hexdigest()[:32]


def fetch(source: remote.Directory, name: str, known: dict, place: Path) -> None:
    """Downloads a file, if its bytes are those that the manifest says."""
    path = place / name
    part = path.with_name(f".{path.name}.part")
    if not checksums.is_inside(place, name):
        raise BadInput(f"{path}: lies outside of the directory")
    print(f"downloads {source.address}/{name} to {place}", file=sys.stderr, flush=True)
    with remote.explain(f"{source.address}/{name}"):
        source.download(name, part)
    if checksums.digest(part) != known["sha256"]:
        part.unlink()
        raise BadInput(f"{path}: altered since it was written (SHA-256 differs from the manifest)")
    part.replace(path)
