"""The indexes of rows as files beside the store, which the next start reuses.

    index/train-128-nsp-short0.1-seed12345-phase0-STORE-v3-epoch3.npy   int64[R, 3], see sentence_pairs.py
    index/train-128-nsp-...-v3-packed8-epoch3.npy                       uint32[R, 8], see packing.py

A name tells everything a file depends on (weights of sources too: train-128-nsp-short0.1-weights1.0,2.5-...).
Several processes may build the same file, which appears when it is whole. Everything here may be deleted at any time;
the manifest does not know it, so `verify` does not look at it, and rows are checked as they are read.
The file of epoch 0 stays: its rows are those that every epoch is taken to have.
"""

import atexit
import contextlib
import functools
import hashlib
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from bert_jax.data import sentence_pairs
from bert_jax.data.npy_file import Growing
from bert_jax.data.store import Store
from bert_jax.errors import BadInput
from bert_jax.storage import atomic

VERSION = 3  # of the rows that the same store and rules give; part of the names
# Seconds after which a temporary file is taken for one that a killed process left.
STALE = 24 * 3600


class Superfluous(Exception):
    """An index that is not needed any more, or that another process has written in the meantime."""


def never() -> bool:
    return False


def of_pairs(store: Store, split: str, rules_: sentence_pairs.Rules) -> "Indexes":
    """The rows of one split under one set of rules, as sentence_pairs.py makes them."""
    made_from = hashlib.sha256(store.fingerprint.encode()).hexdigest()[:12]
    name = (
        f"{split}-{rules_.length}-{rules_.pairs}-short{rules_.short_rate}{name_weights(rules_)}"
        f"-seed{rules_.seed}-phase{rules_.phase}-{made_from}-v{VERSION}"
    )
    build = functools.partial(sentence_pairs.build, store.splits[split], rules_)
    return Indexes(place(store.path), name, np.int64, sentence_pairs.COLUMNS, build)


def name_weights(rules_: sentence_pairs.Rules) -> str:
    """'' where every source is read once, and so are its rows."""
    if all(weight == 1 for weight in rules_.weights):
        return ""
    weights = ",".join(str(float(weight)) for weight in rules_.weights)
    # A file's name has room for 255 characters.
    short = weights if len(weights) < 100 else hashlib.sha256(weights.encode()).hexdigest()[:12]
    return f"-weights{short}"


@functools.cache
def place(store: Path) -> Path:
    """The directory of a store's indexes: within it or, where nothing can be written, a temporary one, which links to
    those that are there."""
    directory = store / "index"
    try:
        directory.mkdir(exist_ok=True)
        if os.access(directory, os.W_OK):
            return directory
    except OSError:
        pass
    spare = Path(tempfile.mkdtemp(prefix="bert_jax_index_"))
    atexit.register(shutil.rmtree, spare, ignore_errors=True)
    for there in directory.glob("*.npy"):
        (spare / there.name).symlink_to(there.absolute())
    # An index may be large, and a temporary directory may lie in memory.
    print(f"{directory}: cannot be written; new row indexes go to {spare}", file=sys.stderr)
    return spare


class Indexes:
    """The files of one index, one an epoch: arrays [R, columns].

    build: (epoch, cancelled) -> its rows, in parts, no more of them once cancelled().
    """

    def __init__(self, directory: Path, name: str, kind, columns: int, build: Callable):
        self.directory, self.name, self.build = directory, name, build
        self.kind, self.columns = np.dtype(kind), columns

    def path(self, epoch: int) -> Path:
        return self.directory / f"{self.name}-epoch{epoch}.npy"

    def open(self, epoch: int, cancelled: Callable[[], bool] = never) -> np.ndarray:
        """An epoch's rows, mapped from their file, which is built if it is missing or cannot be read."""
        path = self.path(epoch)
        try:
            index = np.load(path, mmap_mode="r")
            if index.dtype == self.kind and index.shape[1:] == (self.columns,) and len(index):
                return index
        except Exception:  # a damaged header is evaluated, and can raise anything
            pass
        path.unlink(missing_ok=True)
        try:
            self.write(path, self.build(epoch, cancelled), cancelled)
        except Superfluous:
            if cancelled():
                raise
        return np.load(path, mmap_mode="r")

    def write(self, path: Path, parts, cancelled: Callable[[], bool]) -> None:
        self.directory.mkdir(exist_ok=True)
        for left in self.directory.glob(".*"):
            if time.time() - left.stat().st_mtime > STALE:
                left.unlink(missing_ok=True)
        with atomic.file(path) as file:
            array = Growing(file, self.kind, self.columns)
            for part in parts:
                array.append(part)
            array.finish()
            # On a network file system another host may have mapped a file that is there, and would lose its pages.
            if cancelled() or path.exists():
                raise Superfluous

    def forget(self, epoch: int) -> None:
        """Deletes the indexes of earlier epochs but for the first."""
        for path in self.directory.glob(f"{self.name}-epoch*.npy"):
            if 0 < int(path.stem.rpartition("epoch")[2]) < epoch:
                path.unlink(missing_ok=True)


def check(index: np.ndarray, sound: bool) -> None:
    """Raises BadInput and deletes the file, if it can be, of a mapped index whose rows were found to be not sound."""
    if not sound:
        with contextlib.suppress(OSError):
            Path(index.filename).unlink()
        raise BadInput(f"{index.filename}: damaged; start again without it")
