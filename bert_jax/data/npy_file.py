"""Writes a .npy file in parts whose number is not known in advance."""

from typing import BinaryIO

import numpy as np

HEADER = 128  # bytes of NumPy's header for any array of one or two dimensions


class NpyWriter:
    """A writer of an array [N, *columns] to an open file: `append` adds rows, `finish` writes the header.

    The file is not memory-mapped: on a full disk, writing to a mapping raises SIGBUS instead of an error.
    """

    def __init__(self, file: BinaryIO, dtype: np.dtype, *columns: int):
        self.file = file
        self.dtype = np.dtype(dtype)
        self.columns = columns
        self.length = 0
        file.write(bytes(HEADER))

    def append(self, array: np.ndarray) -> None:
        self.file.write(np.ascontiguousarray(array, self.dtype))
        self.length += len(array)

    def finish(self) -> None:
        shape = (self.length, *self.columns)
        header = {"descr": self.dtype.str, "fortran_order": False, "shape": shape}
        self.file.seek(0)
        np.lib.format.write_array_header_1_0(self.file, header)
