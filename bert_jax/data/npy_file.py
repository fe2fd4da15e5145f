"""A .npy file that is written in parts, before it is known how many there are."""

from typing import BinaryIO

import numpy as np

HEADER = 128  # bytes of NumPy's header of an array of one or two dimensions, of any length


class Growing:
    """The array in an open file: what is appended to it, rows of `columns`. `finish` writes the header.

    The file is not mapped: on a full disk that would be a SIGBUS instead of an error.
    """

    def __init__(self, file: BinaryIO, kind: np.dtype, *columns: int):
        self.file, self.kind, self.columns, self.length = file, np.dtype(kind), columns, 0
        file.write(bytes(HEADER))

    def append(self, array: np.ndarray) -> None:
        self.file.write(np.ascontiguousarray(array, self.kind))
        self.length += len(array)

    def finish(self) -> None:
        shape = (self.length, *self.columns)
        header = {"descr": self.kind.str, "fortran_order": False, "shape": shape}
        self.file.seek(0)
        np.lib.format.write_array_header_1_0(self.file, header)
