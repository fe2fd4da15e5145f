"""Files of row indexes beside the store: used again, checked, made anew, deleted."""

import numpy as np
from kits.stores import make_store, random_documents

from bert_jax.data import rows
from bert_jax.data.index import CHECKSUM, HEADER, of_pairs

RULES = rows.Rules(seed=5, phase=1, length=40, pairs="nsp", short_rate=0.3)


def test_index_files_are_reused_and_rebuilt_when_damaged(tmp_path, monkeypatch):
    store = make_store(tmp_path / "store", random_documents(40))
    indexes = of_pairs(store, "train", RULES)
    expected = np.array(indexes.open(0))
    path = store.path / "index" / f"{indexes.name}-epoch0.npy"
    assert path.stat().st_size == HEADER + expected.nbytes + CHECKSUM
    whole = path.read_bytes()
    for damaged in (
        b"",
        whole[:100],
        whole[:-8],
        whole + b"12345678",
        whole[:HEADER] + bytes(len(whole) - HEADER),
        whole[:200] + bytes([whole[200] ^ 1]) + whole[201:],  # still a row that can be
    ):
        path.write_bytes(damaged)
        np.testing.assert_array_equal(indexes.open(0), expected)
        assert path.read_bytes() == whole
    remembered = store.path / "index" / f"{indexes.name}-rows.json"
    assert indexes.rows_per_epoch() == len(expected)
    fewer = remembered.read_text().replace(str(len(expected)), str(len(expected) - 1))
    for damaged in ("{", "{}", '{"rows": 7}', fewer):
        remembered.write_text(damaged)
        assert indexes.rows_per_epoch() == len(expected)
    monkeypatch.setattr(rows, "build", None)  # a second start builds nothing
    monkeypatch.setattr(rows, "count", None)
    again = of_pairs(store, "train", RULES)
    np.testing.assert_array_equal(again.open(0), expected)
    assert again.rows_per_epoch() == len(expected)


def test_an_index_that_another_host_has_made_meanwhile_stays(tmp_path, monkeypatch):
    """It may be mapped there: over a network its pages would be gone with the file."""
    store = make_store(tmp_path / "store", random_documents(40))
    indexes = of_pairs(store, "train", RULES)
    path, build = store.path / "index" / f"{indexes.name}-epoch0.npy", rows.build

    def slow(*arguments):
        monkeypatch.setattr(rows, "build", build)
        of_pairs(store, "train", RULES).open(0)
        slow.number = path.stat().st_ino
        return build(*arguments)

    monkeypatch.setattr(rows, "build", slow)
    index = indexes.open(0)
    assert path.stat().st_ino == slow.number and len(index) == indexes.rows_per_epoch()
    assert [left.name for left in path.parent.glob("*.npy")] == [path.name]
    assert not list(path.parent.glob(".*"))


def test_names_tell_everything_an_index_depends_on(tmp_path):
    store = make_store(tmp_path / "store", random_documents(10))
    changes = dict(seed=6, phase=0, length=41, pairs="sop", short_rate=0.2)
    names = {of_pairs(store, "train", RULES._replace(**{k: v})).name for k, v in changes.items()}
    names |= {of_pairs(store, split, RULES).name for split in ("train", "heldout")}
    other = store._replace(manifest={**store.manifest, "fingerprint": "other"})
    names.add(of_pairs(other, "train", RULES).name)
    for weights in ((2.0,), (2.5,), (1.0, 2.0), (2.0,) * 99, (2.0,) * 98 + (3.0,)):
        names.add(of_pairs(store, "train", RULES._replace(weights=weights)).name)
    assert len(names) == len(changes) + 3 + 5 and max(map(len, names)) < 200
    names |= {of_pairs(store, "train", RULES._replace(weights=(1,) * n)).name for n in range(3)}
    assert len(names) == len(changes) + 3 + 5


def test_old_epochs_are_deleted(tmp_path):
    store = make_store(tmp_path / "store", random_documents(10))
    indexes = of_pairs(store, "train", RULES)
    for epoch in range(4):
        indexes.open(epoch)
    of_pairs(store, "train", RULES._replace(seed=6)).open(0)
    indexes.forget(2)
    left = sorted(path.name for path in (store.path / "index").glob("*.npy"))
    assert [name.split("-epoch")[1] for name in left if "seed5" in name] == ["2.npy", "3.npy"]
    assert len(left) == 3


def test_a_store_that_cannot_be_written_to(tmp_path):
    store = make_store(tmp_path / "store", random_documents(10))
    (store.path / "index").write_text("a file, where the directory would be")
    indexes = of_pairs(store, "train", RULES)
    assert len(indexes.open(0)) == indexes.rows_per_epoch() > 0
    indexes.forget(5)
