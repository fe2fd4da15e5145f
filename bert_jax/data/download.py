"""Stores, saved batches and vocabularies at an address, as gs://bucket/store: copied to this host's disk once, and read
from there.

    $XDG_CACHE_HOME/bert_jax/stores/DIGEST/     a copy, by the SHA-256 of its manifest: never that of an older store
    .../stores/.DIGEST.lock                     held by the process that copies; others of this host wait for it
    .../stores/made-DIGEST/                     what `prepare` makes for an address, until it lies there
    .../files/DIGEST/NAME                       a vocabulary, by its own SHA-256

A file gets its name once its bytes are those that the manifest says. All of it may be deleted when no run reads it.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from bert_jax.data import store as stores
from bert_jax.errors import BadInput
from bert_jax.storage import atomic, checksums, remote

MANIFEST = "manifest.json"
PROBE = ".writable"  # written and removed
TRIES = 2  # to copy a file


def cache() -> Path:
    """Where what can be had again is kept on this host; it begins with ~ where the home is not known either."""
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "bert_jax"


def directory(name: str = "stores") -> Path:
    """Of the copies; made where it is not there."""
    try:
        path = cache().expanduser() / name
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except (OSError, RuntimeError) as error:  # a user without a home
        reason = getattr(error, "strerror", None) or error
        raise BadInput(f"{cache() / name}: {reason}; set XDG_CACHE_HOME") from None
    return path


def absolute(name: str) -> str:
    """A name that means the same in any directory; an address does, and so does no name."""
    return str(Path(name).absolute()) if name and not remote.is_address(name) else name


def is_there(name: str) -> bool:
    """Whether a whole store lies at a path or an address: the manifest is the last that is written."""
    if not remote.is_address(name):
        return (Path(name) / MANIFEST).is_file()
    with remote.reached(name):
        return remote.Place(name).exists(MANIFEST)


def local(name: str | Path, *, hashes: bool = False, read: Callable = stores.read_manifest) -> Path:
    """The directory of what is named: a path as it is; the copy of what lies at an address, of which is fetched what is
    missing, has another size or, with `hashes`, was altered.

    read: (directory) -> its manifest; raises BadInput. So does this, where nothing whole is at the address.
    """
    if not remote.is_address(name):
        return Path(name)
    with copied(name) as (source, place):
        files = read(place)["files"]
        wrong = {
            file: files[file]
            for file in files
            if checksums.check_file(place, file, files[file], hashes)
        }
        if wrong:
            atomic.remove_left(place, deep=True)  # of a process that was killed: the room is needed
            size = sum(known["bytes"] for known in wrong.values())
            check_room(place, size)
            line = f"{name}: {len(wrong)} files of {size / 1e6:,.1f} MB are copied to {place}"
            print(line, file=sys.stderr, flush=True)
        for file, known in wrong.items():
            fetch(source, file, known, place)
    return place


def file(name: str) -> Path:
    """A file as it is; the copy of one at an address, of which another content is another copy."""
    if not remote.is_address(name):
        return Path(name)
    with remote.reached(name):
        place, last = remote.parted(name)
        data = place.read(last)
    path = directory("files") / digest(data) / last
    with alone(path.parent):
        if not same(path, data):
            write(path, [data])
    return path


def here(name: str) -> Path | None:
    """The directory of a store that is on this host already, and whole by its sizes."""
    if not is_there(name):
        return None
    if not remote.is_address(name):
        return Path(name)
    with copied(name) as (_, place):
        problems = stores.check_files(place, stores.read_manifest(place), hashes=False)
        return None if any(problems) else place


def manifest(name: str) -> dict:
    """Of the store at a path or an address, of which nothing else is fetched. Raises BadInput."""
    if not remote.is_address(name):
        return stores.read_manifest(Path(name))
    with copied(name) as (_, place):
        return stores.read_manifest(place)


@contextlib.contextmanager
def copied(name: str) -> Iterator[tuple[remote.Place, Path]]:
    """What lies at an address, and the directory of its copy, in which the manifest is and no other process writes."""
    source = remote.Place(name)
    with remote.reached(f"{name}/{MANIFEST}"):
        text = source.read(MANIFEST)
    place = directory() / digest(text)
    with remote.naming(place, name), alone(place):
        place.mkdir(exist_ok=True)
        if not same(place / MANIFEST, text):
            write(place / MANIFEST, [text])
        yield source, place


def digest(text: bytes) -> str:
    return hashlib.sha256(text).hexdigest()[:32]


def same(path: Path, text: bytes) -> bool:
    return path.is_file() and path.read_bytes() == text


@contextlib.contextmanager
def alone(place: Path) -> Iterator[None]:
    """Within it no other process of this host changes `place`; waits for one that does."""
    with open(place.with_name(f".{place.name}.lock"), "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def check_room(place: Path, size: int) -> None:
    free = shutil.disk_usage(place).free
    if size > free:
        raise BadInput(
            f"{place}: {size / 1e9:,.1f} GB are to be copied to {place.parent}, where {free / 1e9:,.1f} GB are free;"
            " XDG_CACHE_HOME names another place"
        )


def fetch(source: remote.Place, name: str, known: dict, place: Path) -> None:
    """Copies a file, if its bytes are those that the manifest says."""
    if not checksums.inside(place, name):
        raise BadInput(f"{place}/{name}: lies outside of the directory")
    for _ in range(TRIES):
        with remote.reached(f"{source.address}/{name}"):
            if write(place / name, source.parts(name, known["bytes"]), known["sha256"]):
                return
    raise BadInput(
        f"{place}/{name}: altered since it was written (SHA-256 differs from the manifest)"
    )


def write(path: Path, parts, expected: str = "") -> bool:
    """Writes a file in one go; not where its SHA-256 is not that."""
    path.parent.mkdir(parents=True, exist_ok=True)
    found = hashlib.sha256()
    with contextlib.suppress(Altered), atomic.file(path) as opened:
        for part in parts:
            opened.write(part)
            found.update(part)
        if expected and found.hexdigest() != expected:
            raise Altered
        return True
    return False


class Altered(Exception):
    """What was copied is not what the manifest says."""


# --- Writing --------------------------------------------------------------------------------------


def check_free(name: str) -> None:
    """Before hours of work: raises BadInput where something else lies at an address, or nothing can be written."""
    target = remote.Place(name)
    ours = {MANIFEST, "tokenizer", "report.json", "report.txt", "unigrams.npy", *stores.SPLITS}
    with remote.reached(f"config.store={name}"):
        others = set(target.names()) - ours - {PROBE}
        if not others:
            target.write(PROBE, b"")
            target.remove(PROBE)
    if others:
        raise BadInput(f"config.store={name}: no token store, but {min(others)} is there")


def making(name: str, made_from: dict) -> Path:
    """Where the store of an address is made: the next start of the same work finds what there is."""
    text = json.dumps([name, made_from], sort_keys=True)
    return directory() / f"made-{digest(text.encode())}"


def upload(place: Path, name: str) -> None:
    """Copies a whole store to an address, the manifest last; it becomes this host's copy."""
    target, text = remote.Place(name), (place / MANIFEST).read_bytes()
    with remote.reached(f"config.store={name}"):
        for file in stores.read_manifest(place)["files"]:
            target.upload(place / file, file)
        target.write(MANIFEST, text)
    copy = directory() / digest(text)
    with alone(copy):
        if copy.exists():
            shutil.rmtree(place)
        else:
            place.rename(copy)
