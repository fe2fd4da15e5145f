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

from bert_jax.errors import BadInput
from bert_jax.storage import atomic


def locate(store: str) -> Path:
    """Where the store shall lie, links followed; BadInput where in the end nothing could be renamed to."""
    path = Path(os.path.realpath(store))
    try:
        atomic.check_free(path, "config.store")
        if os.path.ismount(path):
            raise BadInput(f"config.store={store}: a mount; name a directory below it")
    except OSError as error:
        raise BadInput(f"config.store={store}: cannot be read ({error.strerror})") from None
    return path


def hidden(path: Path) -> Path:
    return path.parent / f".{path.name}.preparing"


@contextlib.contextmanager
def workspace(path: Path, key: str, log: Callable) -> Iterator[Path]:
    """The directory in which the store `path` is made, for this process alone, with what an earlier start of the same
    key has left; deleted where BadInput is raised and, with those of other keys, at the end."""
    directory = hidden(path)
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
            log(f"prepare: starts anew; {directory} is of another config, text or program")
        (directory / key).mkdir(exist_ok=True)
        try:
            yield directory / key
        except BadInput:
            shutil.rmtree(directory / key if others else directory, ignore_errors=True)
            raise
        # On NFS the directory is not empty while the lock is open; the store is whole without it.
        shutil.rmtree(directory, ignore_errors=True)
