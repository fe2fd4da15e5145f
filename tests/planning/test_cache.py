"""What is kept of compiled programs: read back whole, or not at all."""

import pytest

from bert_jax.planning import cache

VALUES = {"memory": {"code": 17}, "events": [["compute", 12345], ["loop", 3, [["done", "a"]]]]}


def read(directory, key="key"):
    return cache.read(directory, key, lambda values: values)


def test_an_entry_is_read_back_under_its_own_key_only(tmp_path):
    assert cache.write(tmp_path, "key", VALUES) == ""
    assert read(tmp_path) == VALUES and read(tmp_path, "another") is None
    (tmp_path / "plans/key.json").rename(tmp_path / "plans/another.json")
    assert read(tmp_path, "another") is None


@pytest.mark.parametrize("damage", [b"", b"null", b"{}", b'{"values": 1}', b"\xff\xfe", "flip"])
def test_a_damaged_entry_is_none_and_is_written_again(tmp_path, damage):
    cache.write(tmp_path, "key", VALUES)
    entry = tmp_path / "plans/key.json"
    entry.write_bytes(entry.read_bytes().replace(b"17", b"16") if damage == "flip" else damage)
    assert read(tmp_path) is None
    cache.write(tmp_path, "key", VALUES)
    assert read(tmp_path) == VALUES
