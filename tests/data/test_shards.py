"""Shard files: what is read is what was written, or Damaged."""

import numpy as np
import pytest

from bert_jax.data.preparation import shards

ARRAYS = {
    "tokens": np.arange(40, dtype=np.uint16),
    "documents": np.zeros(0, np.uint32),
    "hashes": np.arange(6, dtype=np.uint64).reshape(3, 2),
}


def equal(one: dict, other: dict) -> bool:
    return one.keys() == other.keys() and all(
        one[name].dtype == other[name].dtype and np.array_equal(one[name], other[name])
        for name in one
    )


def test_reads_what_was_written(tmp_path):
    shards.write(tmp_path / "one.shard", ARRAYS, {"kept": 3})
    arrays, header = shards.read(tmp_path / "one.shard")
    assert equal(arrays, ARRAYS) and header == {"kept": 3}
    some, _ = shards.read(tmp_path / "one.shard", ["hashes"])
    assert equal(some, {"hashes": ARRAYS["hashes"]})
    assert [path.name for path in tmp_path.iterdir()] == ["one.shard"]


def test_every_flipped_bit_and_every_cut_is_noticed(tmp_path):
    path = tmp_path / "one.shard"
    shards.write(path, ARRAYS, {"kept": 3})
    content = path.read_bytes()
    for place in range(len(content)):
        flipped = bytearray(content)
        flipped[place] ^= 1 << place % 8
        for damaged in (bytes(flipped), content[:place], content + b"x"):
            path.write_bytes(damaged)
            with pytest.raises(shards.Damaged, match="one.shard: damaged"):
                shards.read(path)
