"""Atomic writes: files and directories that appear complete or not at all."""

import os
import re
import shutil
import signal
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from bert_jax.errors import BadInput, Unfinished, may_handle_signals

STDOUT = Path("/dev/stdout")
# Messages of C++ libraries, in their own error types, if the disk is full or a file may not grow.
DISK = ("RESOURCE_EXHAUSTED", "No space left", "File too large")


@contextmanager
def file(path: Path, *, sync: bool = True) -> Iterator[BinaryIO]:
    """Opens a temporary file that replaces `path`, or what a link leads to, when the context ends, and is deleted after
    a failure.

    Readers see the old content or the new; with `sync` also after a power failure. What is no file, such as a pipe, is
    written itself; so is standard output, which may be a file.
    """
    if path.exists() and STDOUT.exists() and path.samefile(STDOUT):
        sys.stdout.flush()
        yield sys.stdout.buffer
        return
    if path.exists() and not path.is_file():
        with open(path, "wb") as opened:
            yield opened
        return
    path = path.resolve()
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
    """Writes a text file atomically, see `file`."""
    with file(path, sync=sync) as opened:
        opened.write(text.encode())


def is_temporary(name: str) -> bool:
    """Returns whether this is the name of a temporary file or directory of this module."""
    return bool(re.fullmatch(r"\..+\.[0-9a-f]{32}", name))


def remove_temporary(directory: Path) -> None:
    """Deletes the temporary files of killed processes in a directory. The caller ensures that no other process is
    writing there."""
    for path in list(directory.iterdir()):
        if is_temporary(path.name) and path.is_file():
            path.unlink(missing_ok=True)


def rename(old: Path, new: Path) -> None:
    """Renames a file or directory, after syncing its content to the disk."""
    for path in (*old.rglob("*"), old):
        fsync(path)
    old.rename(new)
    fsync(new.parent)


def check_free(directory: Path, option: str) -> None:
    """Raises BadInput if `directory` exists and is not an empty directory. option: for the message, as '--output'."""
    directory = Path(directory)
    if directory.resolve() == Path.cwd():
        raise BadInput(f"{option} {directory}: is the current directory; name a new directory")
    if not directory.exists():
        return
    if not directory.is_dir() or any(directory.iterdir()):
        raise BadInput(
            f"{option} {directory}: exists and is not empty; remove it, or name a new directory"
        )


@contextmanager
def terminable():
    """Makes SIGTERM raise SystemExit within the context, so that temporary files are deleted before the end."""
    if not may_handle_signals():
        yield
        return
    # Exits with the code that shells report.
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def new_directory(directory: Path, option: str) -> Iterator[Path]:
    """Creates a temporary directory that becomes `directory` when the context ends, and is deleted after a failure.

    Raises BadInput, which names the option, if `directory` exists and is not empty or cannot be created; Unfinished if
    the disk fails.
    """
    check_free(directory, option)
    directory = Path(directory).resolve()  # a link is followed, not replaced
    temporary = directory.with_name(f".{directory.name}.{uuid.uuid4().hex}")
    try:
        temporary.mkdir(parents=True)
    except OSError as error:
        raise BadInput(f"{option} {directory}: cannot be created ({error.strerror})") from None
    try:
        with terminable():
            yield temporary
        rename(temporary, directory)
    except BaseException as error:
        # Errors of the deletion are ignored, so that the original error is reported.
        shutil.rmtree(temporary, ignore_errors=True)
        if isinstance(error, OSError) or any(word in str(error) for word in DISK):
            reason = " ".join(str(error).split())[:300]
            raise Unfinished(f"{option} {directory}: not written ({reason})") from error
        raise


def fsync(path: Path) -> None:
    """Calls fsync on one file, or on one directory, which syncs the names in it."""
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
