"""Shard files: reading returns what was written, or raises Unfinished and deletes the file."""

import numpy as np

from bert_jax.data.preparation import shards
from bert_jax.errors import Unfinished

ARRAYS = {
    "tokens": np.arange(40, dtype=np.uint16),
    "sentences": np.full(4, 10, np.uint32),
    "documents": np.zeros(0, np.uint32),
    "text_hashes": np.arange(6, dtype=np.uint64).reshape(3, 2),
}


def test_a_flipped_bit_never_changes_an_array(tmp_path):
    """Some bits, as in names and dates that the format stores twice, may flip undetected without effect."""
    shard = shards.Shard(tmp_path / "one.npz", 0)
    shard.write({"kept": 3}, ARRAYS)
    content, noticed = shard.path.read_bytes(), 0
    for place in range(len(content)):
        flipped = bytearray(content)
        flipped[place] ^= (1 << place % 8) * (place > 0)
        shard.path.write_bytes(flipped)
        try:
            assert shard.header() == {"kept": 3}
            for name, array in zip(ARRAYS, shard.read(*ARRAYS), strict=True):
                np.testing.assert_array_equal(array, ARRAYS[name], strict=True)
        except Unfinished as error:
            assert "one.npz" in str(error) and not shard.path.exists()
            noticed += 1
    assert noticed > len(content) / 2
