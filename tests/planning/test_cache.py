"""What is kept of compiled programs: read back whole, or not at all."""

import stat

import pytest

from bert_jax.planning import cache

VALUES = {"memory": {"code": 17}, "events": [["compute", 12345], ["loop", 3, [["done", "a"]]]]}


def same(values):
    return values


@pytest.fixture
def entry(tmp_path):
    cache.write(tmp_path, "key", VALUES)
    return tmp_path / "plans/key.json"


def test_an_entry_is_read_back(tmp_path, entry):
    assert cache.read(tmp_path, "key", same) == VALUES
    assert cache.read(tmp_path, "another", same) is None
    assert [path.name for path in entry.parent.iterdir()] == ["key.json"]


def test_without_a_directory_nothing_is_kept(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert cache.write(None, "key", VALUES) == ""
    assert cache.read(None, "key", same) is None and not list(tmp_path.iterdir())


def test_a_flipped_bit_is_noticed(tmp_path, entry):
    whole = entry.read_bytes()
    for place in range(len(whole)):
        for bit in range(8):
            entry.write_bytes(whole[:place] + bytes([whole[place] ^ 1 << bit]) + whole[place + 1 :])
            found = cache.read(tmp_path, "key", same)
            assert found is None or found == VALUES


@pytest.mark.parametrize("content", [b"", b"null", b"[]", b"{}", b'{"values": 1}', b"\xff\xfe"])
def test_what_is_no_entry_is_as_good_as_none(tmp_path, entry, content):
    entry.write_bytes(content)
    assert cache.read(tmp_path, "key", same) is None
    cache.write(tmp_path, "key", VALUES)
    assert cache.read(tmp_path, "key", same) == VALUES


def test_an_entry_of_another_key_is_none(tmp_path, entry):
    entry.rename(entry.with_name("other.json"))
    assert cache.read(tmp_path, "other", same) is None


def test_a_place_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    assert cache.write(tmp_path / "file", "key", VALUES) == "Not a directory"
    assert cache.read(tmp_path / "file", "key", same) is None


def test_others_cannot_write_it(entry):
    assert stat.S_IMODE(entry.stat().st_mode) == 0o600
