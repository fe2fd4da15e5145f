"""Mapped files much larger than memory: what was read is given back, so that it does not add up.

A page that is mapped counts as memory of this process, and Linux maps from 64 KB to 2 MB around every
touch, so a stream that reads here and there would soon have a whole store in its memory. Pages that
are given back stay in the system's page cache, and reading them again maps them again.
"""

import mmap
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

LIMIT = 1 << 30  # bytes of files in this process's memory from which on they are given back
SLICE = 1 << 28  # bytes of a file that are read here and there before it is asked again
PERIOD = 0.005  # seconds between two looks while others read; a batch maps up to a gigabyte
STATM = Path("/proc/self/statm")  # Linux; elsewhere nothing is given back
# Python names it from 3.13 on.
NORESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000 if sys.platform == "linux" else 0)


def release(*arrays: np.ndarray) -> None:
    """Gives the pages of mapped arrays back where this process has over LIMIT bytes of files in its
    memory. The arrays stay as they are, for every thread."""
    if resident() > LIMIT:
        for array in arrays:
            if array.nbytes >= SLICE:  # smaller ones do not add up
                array.base.madvise(mmap.MADV_DONTNEED)


@contextmanager
def released(array: np.ndarray) -> Iterator[None]:
    """While it is entered, `release` is called all the time: for an array that TensorFlow reads."""
    stop = threading.Event()

    def watch():
        while not stop.wait(PERIOD):
            release(array)

    watcher = threading.Thread(target=watch, daemon=True)
    if array.nbytes >= SLICE and STATM.exists():
        watcher.start()
    try:
        yield
    finally:
        stop.set()
        if watcher.is_alive():
            watcher.join()


def resident() -> int:
    """Bytes of files, libraries among them, in the memory of this process; 0 where that is not told."""
    try:
        return int(STATM.read_text().split()[2]) * mmap.PAGESIZE
    except FileNotFoundError:
        return 0


def in_order(places: np.ndarray, array: np.ndarray) -> list[np.ndarray]:
    """Numbers of `places`, which are read in a mapped array, from front to back and in as many
    parts as the array has slices."""
    order = np.argsort(places)
    return np.array_split(order, 1 + array.nbytes // SLICE)


def writable(path: Path) -> np.ndarray:
    """A .npy file as an array that may be written to, which changes no file.

    Unlike `np.load(path, mmap_mode="c")` it sets no memory aside, which a machine with less memory
    than the file has refuses.
    """
    array = np.load(path, mmap_mode="r")
    flags, access = mmap.MAP_PRIVATE | NORESERVE, mmap.PROT_READ | mmap.PROT_WRITE
    with open(path, "rb") as file:
        pages = mmap.mmap(file.fileno(), 0, flags=flags, prot=access)
    return np.ndarray(array.shape, array.dtype, pages, array.offset)
