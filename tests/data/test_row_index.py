"""Row index files: reused, checked, rebuilt, deleted."""

import errno
import os

import numpy as np
import pytest
from kits.corpora import files
from kits.stores import make_store, random_documents

from bert_jax.tasks.text import pair_rows

RULES = pair_rows.Rules(seed=5, phase=1, length=40, special=3, pair_task="nsp", short_rate=0.3)


@pytest.fixture
def store(tmp_path):
    return make_store(tmp_path / "store", random_documents(40))


def full(*arguments, **keywords):
    raise OSError(errno.EMFILE, "too many open files")


def test_index_files_are_reused_and_rebuilt_when_damaged(store, monkeypatch):
    indexes = pair_rows.indexes(store, "train", RULES)
    expected = np.array(indexes.open(0))
    path = indexes.path(0)
    whole = path.read_bytes()
    damages = [b"", whole[:100], whole[:-8], whole[:80] + b"x" + whole[81:]]
    damages += [whole.replace(b"<i8", b"<u8"), whole.replace(b", 3)", b", 2)")]
    for damaged in damages:
        path.write_bytes(damaged)
        np.testing.assert_array_equal(indexes.open(0), expected)
        assert path.read_bytes() == whole
    path.write_bytes(damaged)
    with monkeypatch.context() as patch, pytest.raises(OSError, match="open files"):
        patch.setattr(np, "memmap", full)
        indexes.open(0)
    assert path.read_bytes() == damaged  # kept: the error does not show that it is damaged
    indexes.open(0)
    again = pair_rows.indexes(store, "train", RULES)
    again.build = None  # a second run must not build it
    np.testing.assert_array_equal(again.open(0), expected)


def test_names_cover_everything_an_index_depends_on(store):
    changes = dict(seed=6, phase=0, length=41, pair_task="sop", short_rate=0.2)
    rules = [RULES._replace(**{key: value}) for key, value in changes.items()]
    names = [pair_rows.indexes(store, "train", changed).name for changed in (RULES, *rules)]
    names.append(pair_rows.indexes(store, "heldout", RULES).name)
    other = store._replace(manifest={**store.manifest, "fingerprint": "other"})
    names.append(pair_rows.indexes(other, "train", RULES).name)
    assert len(set(names)) == len(names)


def test_old_epochs_are_deleted(store):
    indexes = pair_rows.indexes(store, "train", RULES)
    others = pair_rows.indexes(store, "train", RULES._replace(seed=6))
    others.open(1)
    for epoch in range(5):
        indexes.open(epoch)
    kept = 0, 2, 3, 4  # epoch 4 may have been opened during epoch 3, while another host opens 2
    expected = {others.path(1), *map(indexes.path, kept)}
    assert set((store.path / "index").iterdir()) == expected


def test_an_index_that_another_run_reads_is_not_deleted(store):
    first, second = (pair_rows.indexes(store, "train", RULES) for _ in range(2))
    own, other = (indexes.open(1) for indexes in (first, second))
    del own
    first.open(4)
    assert second.path(1).exists() and len(other)
    del other
    first.open(4)
    assert not second.path(1).exists()


def test_an_index_that_another_run_deletes_before_it_is_mapped_is_built_again(store):
    indexes, number = pair_rows.indexes(store, "train", RULES), []
    write = indexes.write

    def write_and_lose(path, parts):
        write(path, parts)
        number.append(path)
        if len(number) == 1:
            path.unlink()

    indexes.write = write_and_lose
    assert len(indexes.open(2)) and len(number) == 2


@pytest.mark.parametrize("is_there", [True, False])
def test_indexes_of_a_read_only_store_are_in_the_cache(store, tmp_path, monkeypatch, is_there):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    if is_there:
        (store.path / "index").mkdir()
        monkeypatch.setattr(os, "access", lambda path, mode: False)
    else:
        (store.path / "index").write_text("a file, where the directory would be")
    before = files(store.path)
    indexes = pair_rows.indexes(store, "train", RULES)
    assert len(indexes.open(0)) and indexes.path(0).is_relative_to(tmp_path / "cache")
    assert files(store.path) == before and files(tmp_path / "cache")
