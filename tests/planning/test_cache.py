"""What is kept of compiled programs: read back whole, or not at all."""

import stat

import pytest

from bert_jax.planning import cache

VALUES = {"memory": {"code": 17}, "events": [["compute", 12345], ["loop", 3, [["done", "a"]]]]}


def read(directory, key="key"):
    return cache.read(directory, key, lambda values: values)


@pytest.fixture
def entry(tmp_path):
    assert cache.write(tmp_path, "key", VALUES) == ""
    return tmp_path / "plans/key.json"


def test_an_entry_is_read_back_under_its_own_key_only(tmp_path, entry):
    assert read(tmp_path) == VALUES and read(tmp_path, "another") is None
    assert [path.name for path in entry.parent.iterdir()] == ["key.json"]
    assert stat.S_IMODE(entry.stat().st_mode) == 0o600
    entry.rename(entry.with_name("another.json"))
    assert read(tmp_path, "another") is None


def test_a_flipped_bit_is_noticed(tmp_path, entry):
    whole = entry.read_bytes()
    for place, byte in enumerate(whole):
        flipped = byte ^ 1 << place % 8
        entry.write_bytes(whole[:place] + bytes([flipped]) + whole[place + 1 :])
        assert read(tmp_path) in (None, VALUES)


@pytest.mark.parametrize("content", [b"", b"null", b"{}", b'{"values": 1}', b"\xff\xfe"])
def test_an_entry_that_cannot_be_read_is_written_again(tmp_path, entry, content):
    entry.write_bytes(content)
    assert read(tmp_path) is None
    cache.write(tmp_path, "key", VALUES)
    assert read(tmp_path) == VALUES


def test_without_a_usable_directory_nothing_is_kept(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    for directory, told in ((None, False), (tmp_path / "file", True)):
        assert bool(cache.write(directory, "key", VALUES)) == told
        assert read(directory) is None
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
