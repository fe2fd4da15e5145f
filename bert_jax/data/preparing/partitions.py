"""Records on disk, spread over files by their first bits, so that a part of them can be sorted in memory at a time."""

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np

# 128 files are few enough to be open at the same time, and 30 GB of text are sorted in under 100 MB where most keys
# differ. Equal keys are in one file: a sentence that stands 100 million times takes 800 MB for itself.
BITS = 7


class Partitions:
    """Rows of `columns` 64-bit unsigned integers. Used as a context while they are added; then read, once.

    The first column decides the file; all files in order hold it in the order of its first bits.
    """

    def __init__(self, directory: Path, columns: int):
        self.directory, self.columns = directory, columns
        self.paths = [directory / f"{number:03d}" for number in range(1 << BITS)]

    def __enter__(self):
        shutil.rmtree(self.directory, ignore_errors=True)
        self.directory.mkdir(parents=True)
        with contextlib.ExitStack() as stack:
            self.files = [stack.enter_context(open(path, "wb")) for path in self.paths]
            self.close = stack.pop_all().close
        return self

    def __exit__(self, *error):
        self.close()

    def add(self, *columns: np.ndarray) -> None:
        """Appends uint64[N] columns."""
        part = (columns[0] >> np.uint64(64 - BITS)).astype(np.uint8)
        order = np.argsort(part, kind="stable")  # of bytes: a radix sort
        records = np.stack(columns, axis=1).astype(np.uint64, copy=False)[order]
        ends = np.cumsum(np.bincount(part, minlength=1 << BITS))
        for number in np.unique(part):
            start = ends[number - 1] if number else 0
            self.files[number].write(records[start : ends[number]])

    def __iter__(self) -> Iterator[np.ndarray]:
        """uint64[N, columns] of each file in turn, which is removed with it."""
        for path in self.paths:
            records = np.fromfile(path, np.uint64).reshape(-1, self.columns)
            path.unlink()
            yield records
        self.directory.rmdir()
