"""Downloads stores, saved batches and vocabularies from an address such as gs://bucket/store, once per host.

    $XDG_CACHE_HOME/bert_jax/stores/DIGEST/     a copy; DIGEST is that of the manifest, so a new store gets a new copy
    .../stores/.DIGEST.lock                     held by the process that downloads; others on this host wait for it
    .../files/DIGEST/NAME                       a vocabulary; DIGEST is that of the file, or files

A file is renamed into place after its SHA-256 is verified. The cache may be deleted while no run reads it.
"""

import fcntl
import hashlib
import os
from collections.abc import Callable
from pathlib import Path

from bert_jax.data import store as stores
from bert_jax.errors import BadInput, log
from bert_jax.storage import atomic, checksums, remote
from bert_jax.tokenizers.tokenizer import BESIDE

MANIFEST = "manifest.json"


def cache() -> Path:
    """Returns the cache directory of this host. It begins with ~ if XDG_CACHE_HOME is not set."""
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "bert_jax"


def cache_directory(name: str = "stores") -> Path:
    """Returns a subdirectory of the cache; creates it if it is missing."""
    path = cache().expanduser() / name
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.mkdir(mode=0o700, exist_ok=True)
    return path


def absolute(name: str) -> str:
    """Returns an absolute path; an address and the empty name stay as they are."""
    if not name or remote.is_address(name):
        return name
    return str(Path(name).absolute())


def exists(name: str) -> bool:
    """Returns whether a complete store is at a path or address. The manifest is written last."""
    return remote.exists(f"{name.rstrip('/')}/{MANIFEST}")


def local(name: str | Path, *, hashes: bool = False, read: Callable = stores.read_manifest) -> Path:
    """Returns a local directory: a path unchanged; for an address its copy, after downloading what differs.

    Downloads files that are missing or have another size than in the manifest.

    hashes: downloads files with another SHA-256, too.
    read: function (directory) -> its manifest.

    Raises BadInput if the address has no complete store.
    """
    if not remote.is_address(name):
        return Path(name)
    source = remote.Directory(name)
    with remote.explain(f"{name}/{MANIFEST}"):
        text = source.read(MANIFEST)
    copy = cache_directory() / digest(text)
    copy.mkdir(exist_ok=True)
    # No other process writes to the copy in the meantime.
    with remote.naming(copy, name), open(copy.with_name(f".{copy.name}.lock"), "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        path = copy / MANIFEST
        if not path.exists() or path.read_bytes() != text:
            atomic.write(path, text.decode())
        for file, expected in read(copy)["files"].items():
            if checksums.check_file(copy, file, expected, hashes):
                fetch(source, file, expected, copy)
    return copy


def local_file(name: str) -> Path:
    """Returns a local file of a tokenizer: a path unchanged; for an address, the path of a fresh copy, named by its
    content, with the files of BESIDE that are beside it."""
    if not remote.is_address(name):
        return Path(name)
    with remote.explain(name):
        source, last = remote.split_address(name)
        contents = {last: source.read(last)}
        for other in BESIDE:
            if other != last and source.exists(other):
                contents[other] = source.read(other)
    directory = cache_directory("files") / digest(b"".join(contents.values()))
    directory.mkdir(exist_ok=True)
    for file_name, data in contents.items():
        with atomic.file(directory / file_name) as file:
            file.write(data)
    return directory / last


def digest(text: bytes) -> str:
    """Returns the first 128 bits of the SHA-256, in hex."""
    return hashlib.sha256(text).hexdigest()[:32]


def fetch(source: remote.Directory, name: str, expected: dict, copy: Path) -> None:
    """Downloads a file of the manifest and verifies its SHA-256. Raises BadInput if it differs."""
    path = copy / name
    part = path.with_name(f".{path.name}.part")
    if not checksums.is_inside(copy, name):
        raise BadInput(f"{path}: the manifest names a file outside of its directory")
    log(f"downloading {source.address}/{name} to {copy}")
    with remote.explain(f"{source.address}/{name}"):
        source.download(name, part)
    if checksums.digest(part) != expected["sha256"]:
        part.unlink()
        raise BadInput(f"{path}: altered since it was written (SHA-256 differs from the manifest)")
    part.replace(path)
