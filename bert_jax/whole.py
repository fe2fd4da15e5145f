"""Directories that appear when they are whole, or not at all."""

import contextlib
import os
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path

from bert_jax.errors import BadInput, Unfinished


def free(directory: Path, option: str) -> None:
    """Raises BadInput where something lies at `directory` that is not an empty directory."""
    directory = Path(directory)
    if directory.exists() and not (directory.is_dir() and not any(directory.iterdir())):
        raise BadInput(f"{option} {directory}: there already, and not an empty directory")


@contextlib.contextmanager
def whole(directory: Path, option: str) -> Iterator[Path]:
    """A hidden directory beside `directory` to write into, which takes its place at the end; gone after a failure.

    Raises BadInput, naming the option, where `directory` is not free or cannot be made; Unfinished where the disk
    fails.
    """
    free(directory, option)
    directory = Path(directory).absolute()
    temporary = directory.with_name(f".{directory.name}.{uuid.uuid4().hex}")
    try:
        temporary.mkdir(parents=True)
    except OSError as error:
        raise BadInput(f"{option} {directory}: cannot be made ({error.strerror})") from None
    try:
        yield temporary
        flush(temporary)
        temporary.rename(directory)
    except BaseException as error:
        # What went wrong is told, not that the rest of it cannot be deleted.
        shutil.rmtree(temporary, ignore_errors=True)
        if isinstance(error, OSError):
            raise Unfinished(f"{option} {directory}: not written ({error})") from error
        raise


def flush(directory: Path) -> None:
    """Brings the files under a directory, and their names, to the disk."""
    for path in (*directory.rglob("*"), directory):
        number = os.open(path, os.O_RDONLY)
        try:
            os.fsync(number)
        finally:
            os.close(number)
