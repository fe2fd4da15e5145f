"""Records on disk, spread by their first bits, so that a part of them can be sorted in memory at a time.

Each of several writers, anywhere, makes one file: where its parts end, and its records in the order of their parts.
A reader of a part reads its place in every file.
"""

from pathlib import Path
from typing import NamedTuple

import numpy as np

from bert_jax.data.preparation.workplace import whole_file

# Records of a part, about, where most keys differ: tens of megabytes. Equal keys are in one part: a sentence that
# stands 100 million times takes 800 MB for itself.
RECORDS = 1 << 20
BITS = 10  # at most: a thousand places to read in every file


class Partitions(NamedTuple):
    """Rows of `columns` 64-bit unsigned integers, of which the first decides the part by its first `bits`."""

    directory: Path
    columns: int
    bits: int

    @property
    def parts(self) -> range:
        """In order they hold the first column in the order of its first bits."""
        return range(1 << self.bits)

    def write(self, writer: int, columns: list[np.ndarray]) -> None:
        """All records of one writer, as uint64[N] columns; what it wrote before is replaced."""
        # By shifts of less than 64 bits, which NumPy defines.
        part = (columns[0] >> np.uint64(1) >> np.uint64(63 - self.bits)).astype(np.uint16)
        order = np.argsort(part, kind="stable")
        ends = np.cumsum(np.bincount(part, minlength=len(self.parts)), dtype=np.int64)
        records = np.stack(columns, axis=1).astype(np.uint64, copy=False)[order]
        path = self.directory / f"{writer:06d}"
        with whole_file(path) as file:
            file.write(ends)
            file.write(records)

    def read(self, part: int) -> np.ndarray:
        """uint64[N, columns]: the part's records, those of an earlier writer first."""
        found = [np.zeros((0, self.columns), np.uint64)]
        head = 8 * len(self.parts)
        for path in sorted(path for path in self.directory.iterdir() if not path.suffix):
            ends = np.fromfile(path, np.int64, len(self.parts))
            start = int(ends[part - 1]) if part else 0
            count, offset = (
                (int(ends[part]) - start) * self.columns,
                head + start * 8 * self.columns,
            )
            values = np.fromfile(path, np.uint64, count, offset=offset)
            found.append(values.reshape(-1, self.columns))
        return np.concatenate(found)


def make(directory: Path, columns: int, records: int) -> Partitions:
    """An empty directory for about so many records."""
    directory.mkdir(parents=True)
    bits = min(BITS, max(0, -(-records // RECORDS) - 1).bit_length())
    return Partitions(directory, columns, bits)
