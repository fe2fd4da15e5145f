"""Mapped files: what is read is given back, and none is too large."""

import mmap
import sys

import numpy as np
import pytest
from kits.waiting import wait_until

from bert_jax.data import memory_map

linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells what is mapped")
SIZE = 1 << 26


@pytest.fixture
def path(tmp_path):
    """A file of 64 MB of numbers that tell their places."""
    np.save(tmp_path / "array.npy", np.arange(SIZE // 8))
    return tmp_path / "array.npy"


def read(array):
    array[:: mmap.PAGESIZE // 8].sum()


@linux
def test_memory_does_not_grow_with_what_was_read(path, monkeypatch):
    array = memory_map.writable(path)
    before = memory_map.resident()
    read(array)
    memory_map.release(array)
    assert memory_map.resident() > before + 0.9 * SIZE  # under the limit nothing is done
    monkeypatch.setattr(memory_map, "LIMIT", before + SIZE // 2)
    monkeypatch.setattr(memory_map, "SLICE", SIZE)
    memory_map.release(array)
    assert memory_map.resident() < before + 0.1 * SIZE
    np.testing.assert_array_equal(array, np.arange(SIZE // 8))


@linux
def test_what_another_reads_is_released_meanwhile(path, monkeypatch):
    before = memory_map.resident()
    monkeypatch.setattr(memory_map, "LIMIT", before + SIZE // 2)
    monkeypatch.setattr(memory_map, "SLICE", SIZE)
    array = memory_map.writable(path)
    with memory_map.released(array):
        read(array)
        wait_until(lambda: memory_map.resident() < before + 0.1 * SIZE)


def test_a_store_larger_than_the_memory_of_the_machine(tmp_path):
    """The file has 8 TB, all of it a hole but the ends."""
    path, size = tmp_path / "tokens.npy", 1 << 42
    with open(path, "wb") as file:
        header = {"descr": "<u2", "fortran_order": False, "shape": (size,)}
        np.lib.format.write_array_header_1_0(file, header)
        file.seek(2 * size - 2, 1)
        file.write(np.uint16(77).tobytes())
    tokens = memory_map.writable(path)
    assert tokens.shape == (size,) and tokens.dtype == np.uint16 and tokens[-1] == 77
    assert tokens.flags.writeable  # or it could not be handed to TensorFlow
    tokens[0] = 5
    assert np.load(path, mmap_mode="r")[0] == 0
