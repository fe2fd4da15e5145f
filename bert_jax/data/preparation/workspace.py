"""The workspace: a hidden, locked directory beside the store in which `prepare` builds it.

It survives if `prepare` is killed, and is deleted after bad input.

lock     held by the process that prepares
KEY/     KEY is a digest of everything that decides the store's content, so that only the same work is resumed
    vocabulary/   the tokenizer
    documents/    the text as sentences, once a vocabulary is trained on it, until it is encoded
    shards/       encoded text
    tasks/        tasks and results of the workers of Apache Beam
    store/        the store, renamed into place once it is complete and synced to disk
"""

import contextlib
import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from bert_jax.errors import BadInput
from bert_jax.storage import atomic


def resolve_path(store: str) -> Path:
    """Resolves the path of the store, following links. Raises BadInput if a directory could not be renamed to it."""
    path = Path(os.path.realpath(store))
    try:
        atomic.check_free(path, "config.store")
        if os.path.ismount(path):
            raise BadInput(f"config.store={store}: is a mount point; name a directory below it")
    except OSError as error:
        raise BadInput(f"config.store={store}: cannot be read ({error.strerror})") from None
    return path


def workspace_root(path: Path) -> Path:
    """Returns the directory that holds the lock and workspaces of the store at `path`."""
    return path.parent / f".{path.name}.preparing"


@contextlib.contextmanager
def workspace(path: Path, key: str, log: Callable) -> Iterator[Path]:
    """Locks and yields the directory in which the store at `path` is built. It may hold files of an earlier run.

    Deletes it if BadInput is raised; after success, deletes those of all keys. Raises BadInput if another process holds
    the lock.
    """
    directory = workspace_root(path)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        lock = open(directory / "lock", "w")
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        raise BadInput(f"config.store={path}: another process is preparing it") from None
    except OSError as error:
        raise BadInput(f"config.store={path}: cannot be written ({error.strerror})") from None
    with lock:
        others = {other.name for other in directory.iterdir()} - {"lock", key}
        if others and not (directory / key).exists():
            log(f"prepare: starts over; {directory} was made from another config, text or version")
        (directory / key).mkdir(exist_ok=True)
        try:
            yield directory / key
        except BadInput:
            shutil.rmtree(directory / key if others else directory, ignore_errors=True)
            raise
        # On NFS the open lock file keeps the directory from being deleted; that does not affect the store.
        shutil.rmtree(directory, ignore_errors=True)
