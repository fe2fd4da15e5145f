"""Memory-mapped files of any size."""

import numpy as np

from bert_jax.data import assemble


def test_a_file_larger_than_memory_can_be_mapped(tmp_path):
    """A sparse file of 8 TB, with data only at both ends."""
    path, size = tmp_path / "tokens.npy", 1 << 42
    with open(path, "wb") as file:
        header = {"descr": "<u2", "fortran_order": False, "shape": (size,)}
        np.lib.format.write_array_header_1_0(file, header)
        file.seek(2 * size - 2, 1)
        file.write(np.uint16(77).tobytes())
    tokens = assemble.map_file(path)
    assert tokens.shape == (size,) and tokens.dtype == "uint16" and tokens[size - 1] == 77
