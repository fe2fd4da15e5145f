"""The hidden directory beside a store in which it is made: locked, kept when prepare is killed, gone after bad input.

plan.json      what the rest belongs to: config, text files, versions
text/          the text of sources that come without files, and of compressed files, as it is read
vocabulary-*/  the trained vocabulary, by its fingerprint
shards/        encoded text
tasks/         what a stage hands to the workers of Apache Beam, and gets from them
store/         the store, renamed when it is whole and on the disk
"""

import contextlib
import fcntl
import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from bert_jax.errors import BadInput
from bert_jax.storage import atomic


def locate(store: str) -> Path:
    """Where the store lies or shall lie, links followed; BadInput where in the end nothing could be renamed to."""
    try:
        path = Path(os.path.realpath(store))
        if (path / "manifest.json").exists():
            return path
        taken = path.exists() and not (path.is_dir() and not any(path.iterdir()))
        here, circle = path == Path.cwd(), path.is_symlink()
    except OSError as error:
        raise BadInput(f"config.store={store!r}: cannot be read ({error.strerror})") from None
    if taken:
        raise BadInput(
            f"config.store={store!r}: exists, and is not a token store (no manifest.json)"
        )
    if circle:
        raise BadInput(f"config.store={store!r}: a link that leads to itself")
    if here or os.path.ismount(path):
        what = "the current directory" if here else "a mount point"
        raise BadInput(f"config.store={store!r}: is {what}; name a directory within it")
    return path


def hidden(path: Path) -> Path:
    return path.parent / f".{path.name}.preparing"


@contextlib.contextmanager
def workspace(path: Path) -> Iterator[Path]:
    """The directory in which the store `path` is made, for this process alone; it stays unless BadInput is raised."""
    directory = hidden(path)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        lock = os.open(directory, os.O_RDONLY)
    except OSError as error:
        raise BadInput(
            f"config.store={str(path)!r}: cannot be written ({error.strerror})"
        ) from None
    try:
        take(lock, directory, path)
        try:
            yield directory
        except BadInput:
            shutil.rmtree(directory, ignore_errors=True)
            raise
    finally:
        os.close(lock)


def take(lock: int, directory: Path, path: Path) -> None:
    """Locks the directory, so that one left behind by a kill is told from one that another process is filling."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        other = not os.path.samestat(os.fstat(lock), directory.stat())
    except BlockingIOError:
        raise BadInput(f"config.store={str(path)!r}: another process is preparing it") from None
    except FileNotFoundError:
        other = True
    if other:
        raise BadInput(f"config.store={str(path)!r}: another process has just prepared it")


def clear(path: Path) -> None:
    """Removes what was left beside a finished store, unless another process is about to."""
    if hidden(path).exists():
        with contextlib.suppress(BadInput), workspace(path) as directory:
            shutil.rmtree(directory)


def follow(plan: dict, directory: Path, log: Callable) -> None:
    """Leaves in `directory` what an earlier start of the same plan has finished; else nothing but text/."""
    path = directory / "plan.json"
    keep = {"text"}
    try:
        same = json.loads(path.read_text()) == plan
    except FileNotFoundError:
        same = None
    except ValueError:
        same = False
    if same:
        keep |= {path.name, "shards", *(found.name for found in directory.glob("vocabulary-*"))}
    elif same is False:
        log("starts over: what was left here is of another corpus, config or version")
    for found in directory.iterdir():
        if found.name not in keep:
            shutil.rmtree(found) if found.is_dir() else found.unlink()
    if not same:
        atomic.write(path, json.dumps(plan) + "\n")
