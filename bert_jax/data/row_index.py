"""The indexes of rows as files beside the store, which the next start reuses.

    index/train-128-0123456789abcdef-epoch3.npy             int64[R, 3], see sentence_pairs.py
    index/train-128-0123456789abcdef-packed8-epoch3.npy     uint32[R, 8], see packing.py

The digest in a name is of everything that a file depends on. Several processes may build the same file, which appears
when it is whole. Everything here may be deleted at any time; the manifest does not know it, so `verify` does not look
at it, and rows are checked as they are read. The file of epoch 0 stays: its rows are those that every epoch is taken to
have. Where the store cannot be written to, the files lie in the cache of download.py.
"""

import contextlib
import functools
import hashlib
import os
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import CancelledError
from pathlib import Path

import numpy as np

from bert_jax.data import download, sentence_pairs
from bert_jax.data.npy_file import Growing
from bert_jax.data.store import Store
from bert_jax.storage import atomic

VERSION = 3  # of the rows that the same store and rules give; part of the names
STALE = 24 * 3600  # seconds after which a file being written is one that a killed process left


def of_pairs(store: Store, split: str, rules: sentence_pairs.Rules) -> "Indexes":
    """The rows of one split under one set of rules, as sentence_pairs.py makes them."""
    made_of = hashlib.sha256(repr((VERSION, store.fingerprint, rules)).encode()).hexdigest()[:16]
    build = functools.partial(sentence_pairs.build, store.splits[split], rules)
    name = f"{split}-{rules.length}-{made_of}"
    return Indexes(place(store.path), name, np.int64, sentence_pairs.COLUMNS, build)


def place(store: Path) -> Path:
    """The directory of a store's indexes: one within it or, where that cannot be written, one in the cache."""
    own = store / "index"
    with contextlib.suppress(OSError):
        own.mkdir(exist_ok=True)
    return own if own.is_dir() and os.access(own, os.W_OK) else download.directory("index")


class Indexes:
    """The files of one index, one an epoch: arrays [R, columns].

    build: epoch -> its rows, in parts.
    """

    def __init__(self, place: Path, name: str, kind, columns: int, build: Callable):
        self.place, self.name, self.build = place, name, build
        self.kind, self.columns, self.cancelled = kind, columns, threading.Event()

    def path(self, epoch: int) -> Path:
        return self.place / f"{self.name}-epoch{epoch}.npy"

    def open(self, epoch: int) -> np.ndarray:
        """An epoch's rows, mapped from their file, which is built if it is missing or damaged. Raises OSError where the
        machine fails, as with too many open files."""
        path = self.path(epoch)
        try:
            return self.read(path)
        except FileNotFoundError:
            pass
        except OSError:
            raise
        except Exception:  # a damaged header is evaluated, and can raise anything
            path.unlink(missing_ok=True)
        self.write(path, self.build(epoch))
        return self.read(path)

    def read(self, path: Path) -> np.ndarray:
        rows = np.load(path, mmap_mode="r")
        if rows.dtype != self.kind or rows.shape[1:] != (self.columns,):
            raise ValueError(f"{path}: {rows.dtype}{rows.shape}")
        return rows

    def write(self, path: Path, parts: Iterable[np.ndarray]) -> None:
        """Raises CancelledError once that is set."""
        for left in path.parent.glob(".*"):  # by a process that was killed
            with contextlib.suppress(OSError):  # deleted by another process
                if time.time() - left.stat().st_mtime > STALE:
                    left.unlink()
        with contextlib.suppress(FileExistsError), atomic.file(path) as file:
            array = Growing(file, self.kind, self.columns)
            for part in parts:
                array.append(part)
                if self.cancelled.is_set():
                    raise CancelledError
            array.finish()
            # On a network file system another host may have mapped a file that is there, and would lose its pages.
            if path.exists():
                raise FileExistsError

    def forget(self, epoch: int) -> None:
        """Deletes the indexes of earlier epochs but for the first."""
        for path in self.place.glob(f"{self.name}-epoch*.npy"):
            if 0 < int(path.stem.rpartition("epoch")[2]) < epoch:
                path.unlink(missing_ok=True)
