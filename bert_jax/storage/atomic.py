"""Files and directories that appear when they are whole, or not at all."""

import contextlib
import os
import re
import shutil
import signal
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from bert_jax.errors import BadInput, Unfinished

TEMPORARY = re.compile(r"\..+\.[0-9a-f]{32}")
# What libraries of C++ say, in errors of their own, where the disk is full or a file may not grow.
DISK = ("RESOURCE_EXHAUSTED", "No space left", "File too large")


@contextlib.contextmanager
def file(path: Path, *, sync: bool = True) -> Iterator[BinaryIO]:
    """A file to write, which takes the place of `path` in one go: a reader sees the old content or the new, with `sync`
    also after a power cut. Nothing of it is left after a failure."""
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        with open(temporary, "wb") as opened:
            yield opened
            if sync:
                opened.flush()
                os.fsync(opened.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def write(path: Path, text: str, *, sync: bool = True) -> None:
    with file(path, sync=sync) as opened:
        opened.write(text.encode())


def is_temporary(name: str) -> bool:
    """Whether a file or directory of this name is one that was being written here."""
    return bool(TEMPORARY.fullmatch(name))


def remove_left(directory: Path, *, deep: bool = False) -> None:
    """Deletes the files that killed processes have begun to write in a directory, with `deep` also below it. The caller
    makes sure that no other process writes there now."""
    for path in list(directory.rglob("*") if deep else directory.iterdir()):
        if is_temporary(path.name) and path.is_file():
            path.unlink(missing_ok=True)


def rename(old: Path, new: Path) -> None:
    """Renames a file or a directory once all that it holds is on the disk."""
    flush(old)
    old.rename(new)
    flush_name(new.parent)


def free(directory: Path, option: str) -> None:
    """Raises BadInput where something lies at `directory` that is not an empty directory."""
    directory = Path(directory)
    if directory.resolve() == Path.cwd():
        raise BadInput(f"{option} {directory}: the current directory; name one to be made")
    if directory.exists() and not (directory.is_dir() and not any(directory.iterdir())):
        raise BadInput(f"{option} {directory}: there already, and not an empty directory")


TERMINATED = 128 + signal.SIGTERM  # the exit code that shells give


@contextlib.contextmanager
def terminable() -> Iterator[None]:
    """Within it SIGTERM unwinds, as Ctrl-C does, so that what is half done is cleaned up before the process leaves."""

    def leave(number, frame) -> None:
        sys.exit(TERMINATED)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextlib.contextmanager
def whole(directory: Path, option: str) -> Iterator[Path]:
    """A hidden directory beside `directory` to write into, which takes its place at the end; gone after a failure.

    Raises BadInput, naming the option, where `directory` is not free or cannot be made; Unfinished where the disk
    fails.
    """
    free(directory, option)
    directory = Path(directory).resolve()  # where a link leads
    temporary = directory.with_name(f".{directory.name}.{uuid.uuid4().hex}")
    try:
        temporary.mkdir(parents=True)
    except OSError as error:
        raise BadInput(f"{option} {directory}: cannot be made ({error.strerror})") from None
    try:
        with terminable():
            yield temporary
        rename(temporary, directory)
    except BaseException as error:
        # What went wrong is told, not that the rest of it cannot be deleted.
        shutil.rmtree(temporary, ignore_errors=True)
        if isinstance(error, OSError) or any(word in str(error) for word in DISK):
            reason = " ".join(str(error).split())[:300]
            raise Unfinished(f"{option} {directory}: not written ({reason})") from error
        raise


def flush(directory: Path) -> None:
    """Brings the files under a directory, and their names, to the disk."""
    for path in (*directory.rglob("*"), directory):
        flush_name(path)


def flush_name(path: Path) -> None:
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
