"""The hidden directory beside a store in which it is made: locked, kept when prepare is killed, gone after bad input.

lock     held by the process that prepares
KEY/     named by all that decides the store's bits, so that nothing else is continued
    vocabulary/   the tokenizer
    shards/       encoded text
    tasks/        what a stage hands to the workers of Apache Beam, and gets from them
    store/        the store, renamed when it is whole and on the disk
"""

import contextlib
import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TextIO

from bert_jax.errors import BadInput


def locate(store: str) -> Path:
    """Where the store lies or shall lie, links followed; BadInput where in the end nothing could be renamed to."""
    try:
        path = Path(os.path.realpath(store))
        is_store = (path / "manifest.json").exists()
        is_free = not path.exists() or (path.is_dir() and not any(path.iterdir()))
    except OSError as error:
        raise BadInput(f"config.store={store!r}: cannot be read ({error.strerror})") from None
    if is_store or (is_free and path != Path.cwd() and not os.path.ismount(path)):
        return path
    raise BadInput(
        f"config.store={store!r}: no token store (no manifest.json), and no place for one: name a new directory"
    )


def hidden(path: Path) -> Path:
    return path.parent / f".{path.name}.preparing"


@contextlib.contextmanager
def workspace(path: Path, key: str, log: Callable[[str], None] = print) -> Iterator[Path]:
    """The directory in which the store `path` is made, for this process alone, with what an earlier start of the same
    key has left; deleted at the end and where BadInput is raised."""
    directory = hidden(path)
    try:
        lock = take_lock(directory)
    except BlockingIOError:
        raise BadInput(f"config.store={path}: another process is preparing it") from None
    except OSError as error:
        raise BadInput(f"config.store={path}: cannot be written ({error.strerror})") from None
    with lock:
        delete_others(directory, key, log)
        (directory / key).mkdir(exist_ok=True)
        try:
            yield directory / key
        except BadInput:
            shutil.rmtree(directory, ignore_errors=True)
            raise
        # On NFS the directory is not empty while the lock is open; the store is whole without it.
        shutil.rmtree(directory, ignore_errors=True)


def take_lock(directory: Path) -> TextIO:
    """The open lock file of the directory, which is made; BlockingIOError where another process holds it."""
    while True:
        directory.mkdir(parents=True, exist_ok=True)
        path = directory / "lock"
        with contextlib.ExitStack() as stack:
            lock = stack.enter_context(open(path, "w"))
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # The process that held it may have deleted it since it was opened here.
            if path.exists() and os.path.samestat(os.fstat(lock.fileno()), path.stat()):
                stack.pop_all()
                return lock


def delete_others(directory: Path, key: str, log: Callable[[str], None]) -> None:
    """Deletes what starts of other keys have left, files of earlier versions among it."""
    others = [other for other in directory.iterdir() if other.name not in (key, "lock")]
    if any(other.is_dir() for other in others):
        log("starts over: what was left here is of another corpus, config or version")
    for other in others:
        shutil.rmtree(other) if other.is_dir() else other.unlink()
