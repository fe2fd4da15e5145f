"""Shard files: what is read is what was written, or Damaged."""

import numpy as np
import pytest

from bert_jax.data.preparation import shards

ARRAYS = {
    "tokens": np.arange(40, dtype=np.uint16),
    "documents": np.zeros(0, np.uint32),
    "hashes": np.arange(6, dtype=np.uint64).reshape(3, 2),
}


def test_what_is_read_was_written_and_every_flipped_bit_and_cut_is_noticed(tmp_path):
    path = tmp_path / "one.shard"
    shards.write(path, ARRAYS, {"kept": 3})
    for names in (None, ["hashes"]):
        arrays, header = shards.read(path, names)
        assert list(arrays) == (names or list(ARRAYS)) and header == {"kept": 3}
        for name, array in arrays.items():
            np.testing.assert_array_equal(array, ARRAYS[name], strict=True)
    content = path.read_bytes()
    for place in range(len(content)):
        flipped = bytearray(content)
        flipped[place] ^= 1 << place % 8
        for damaged in (bytes(flipped), content[:place], content + b"x"):
            path.write_bytes(damaged)
            with pytest.raises(shards.Damaged, match="one.shard"):
                shards.read(path)
