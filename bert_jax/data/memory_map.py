"""Files that are larger than memory, as arrays: what is read of them lies in the page cache of the kernel, which takes
it back."""

import mmap
import sys
from pathlib import Path

import numpy as np

# Python names it from 3.13 on.
NORESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000 if sys.platform == "linux" else 0)


def writable(path: Path) -> np.ndarray:
    """A .npy file as an array that may be written to, as TensorFlow asks for; that changes no file.

    Unlike `np.load(path, mmap_mode="c")` it sets no memory aside, which a machine with less memory
    than the file has refuses.
    """
    array = np.load(path, mmap_mode="r")
    flags, access = mmap.MAP_PRIVATE | NORESERVE, mmap.PROT_READ | mmap.PROT_WRITE
    with open(path, "rb") as file:
        pages = mmap.mmap(file.fileno(), 0, flags=flags, prot=access)
    return np.ndarray(array.shape, array.dtype, pages, array.offset)
