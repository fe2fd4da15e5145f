"""Shard files: what is read is what was written, or Damaged."""

import numpy as np
import pytest

from bert_jax.data.preparation import shards

ARRAYS = {
    "tokens": np.arange(40, dtype=np.uint16),
    "sentences": np.full(4, 10, np.uint32),
    "documents": np.zeros(0, np.uint32),
    "text_hashes": np.arange(6, dtype=np.uint64).reshape(3, 2),
}


def test_what_is_read_was_written_and_no_flipped_bit_changes_it(tmp_path):
    """A bit of a name or a date that the format keeps twice may flip unseen; no array changes by it."""
    path = tmp_path / "one.npz"
    shards.write(path, {"kept": 3}, ARRAYS)
    header, arrays = shards.read(path, *ARRAYS)
    assert header == {"kept": 3}
    for name, array in zip(ARRAYS, arrays, strict=True):
        np.testing.assert_array_equal(array, ARRAYS[name], strict=True)
    content, noticed = path.read_bytes(), 0
    for place in range(len(content)):
        flipped = bytearray(content)
        flipped[place] ^= 1 << place % 8
        path.write_bytes(flipped)
        try:
            again = shards.read(path, *ARRAYS)
        except shards.Damaged as error:
            assert "one.npz" in str(error)
            noticed += 1
        else:
            assert again[0] == header
            for one, other in zip(again[1], arrays, strict=True):
                np.testing.assert_array_equal(one, other, strict=True)
    assert noticed > len(content) / 2


@pytest.mark.parametrize("length", [0, 1, 500, -1])
def test_what_is_cut_off_is_noticed(tmp_path, length):
    path = tmp_path / "one.npz"
    shards.write(path, {}, ARRAYS)
    path.write_bytes(path.read_bytes()[:length])
    with pytest.raises(shards.Damaged, match="one.npz"):
        shards.read(path)
