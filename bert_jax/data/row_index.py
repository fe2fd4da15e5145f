"""Row indexes as .npy files in the store, reused by later runs.

    index/train-128-0123456789abcdef-epoch3.npy             int64[R, 3], see tasks/text/pair_rows.py
    index/train-128-0123456789abcdef-rows8-epoch3.npy       uint32[R, 8], see tasks/text/packing.py

The digest in a name covers everything that the file depends on. Several processes may build the same file at once; it
is renamed into place when complete. Index files may be deleted at any time. They are not in the manifest, so `verify`
skips them; rows are validated when they are read. The index of epoch 0 is kept, since its number of rows is used for
every epoch. If the store is read-only, the files are in the cache directory of download.py.
"""

import contextlib
import fcntl
import hashlib
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bert_jax.data import download
from bert_jax.data.npy_file import NpyWriter
from bert_jax.data.store import Store
from bert_jax.errors import BadInput
from bert_jax.storage import atomic


def digest(store: Store, *settings) -> str:
    """Returns a hash of a store's content and the settings of a row builder, for the names of its indexes."""
    text = repr((store.fingerprint, *settings))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def index_directory(store: Path) -> Path:
    """Returns the directory of a store's indexes: `index` in the store or, if that is read-only, in the cache."""
    directory = store / "index"
    with contextlib.suppress(OSError):
        directory.mkdir(exist_ok=True)
        if os.access(directory, os.W_OK):
            return directory
    return download.cache_directory("index")


@dataclass
class Indexes:
    """The index files of one split, one file per epoch: arrays [R, columns] of a dtype.

    name: with the digest of all that the rows depend on.
    build: function (epoch) -> the rows of the epoch, in parts.
    """

    directory: Path
    name: str
    dtype: type
    columns: int
    build: Callable

    def path(self, epoch: int) -> Path:
        return self.directory / f"{self.name}-epoch{epoch}.npy"

    def open(self, epoch: int) -> np.ndarray:
        """Memory-maps an epoch's rows; builds the file first if it is missing or damaged.

        Deletes the files of earlier epochs that no process reads, but not of the last two: the next epoch is opened
        early, while a slower host may be about to open the previous one. Raises OSError if the system fails, for
        example with too many open files.
        """
        path = self.path(epoch)
        self.delete_before(epoch - 2)
        while True:
            try:
                return self.read(path)
            except FileNotFoundError:  # perhaps since another run has just deleted it
                self.write(path, self.build(epoch))
            except (MemoryError, OSError):  # not damage: building it again would not help
                raise
            except Exception:  # NumPy evaluates the header; a damaged one can raise any type
                path.unlink(missing_ok=True)

    def read(self, path: Path) -> np.ndarray:
        """Maps and locks an index file; raises ValueError if its dtype or number of columns is wrong."""
        with open(path, "rb") as file:
            # Held as long as the array exists, whose mapping keeps the file open. On a file system without locks, no
            # file is deleted.
            with contextlib.suppress(OSError):
                fcntl.flock(file, fcntl.LOCK_SH)
            np.lib.format.read_magic(file)
            shape, _, dtype = np.lib.format.read_array_header_1_0(file)
            rows = np.memmap(file, dtype, "r", file.tell(), shape)
        if rows.dtype != self.dtype or rows.shape[1:] != (self.columns,):
            raise ValueError(f"{path}: {rows.dtype}{rows.shape}")
        return rows

    def write(self, path: Path, parts: Iterable[np.ndarray]) -> None:
        """Writes an index file."""
        with contextlib.suppress(FileExistsError), atomic.file(path) as file:
            array = NpyWriter(file, self.dtype, self.columns)
            for part in parts:
                array.append(part)
            array.finish()
            # On a network file system, replacing a file that another host has mapped would invalidate its pages.
            if path.exists():
                raise FileExistsError

    def delete_before(self, epoch: int) -> None:
        """Deletes the indexes of the epochs before `epoch` that no process reads, except epoch 0."""
        for path in self.directory.glob(f"{self.name}-epoch*.npy"):
            _, _, number = path.stem.rpartition("epoch")
            if 0 < int(number) < epoch:
                with contextlib.suppress(OSError), open(path, "r+b") as file:  # NFS locks need r+
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    path.unlink()


def damaged(indexes: list[Indexes], epoch: int) -> BadInput:
    """Deletes the files of an epoch, whose rows are invalid, and returns the error that names the last one."""
    for index in indexes:
        index.path(epoch).unlink(missing_ok=True)
    return BadInput(f"{indexes[-1].path(epoch)}: damaged, deleted; start again")
