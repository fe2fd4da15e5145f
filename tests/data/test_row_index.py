"""Files of row indexes beside the store: used again, checked, made anew, deleted."""

import numpy as np
import pytest
from kits.stores import make_store, random_documents

from bert_jax.data import sentence_pairs
from bert_jax.data.row_index import CHECKSUM, HEADER, of_pairs

RULES = sentence_pairs.Rules(seed=5, phase=1, length=40, pairs="nsp", short_rate=0.3)


@pytest.fixture
def store(tmp_path):
    return make_store(tmp_path / "store", random_documents(40))


def test_index_files_are_reused_and_rebuilt_when_damaged(store, monkeypatch):
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
        whole[:200] + bytes([whole[200] ^ 1]) + whole[201:],  # still a row that can be
    ):
        path.write_bytes(damaged)
        np.testing.assert_array_equal(indexes.open(0), expected)
        assert path.read_bytes() == whole
    remembered = store.path / "index" / f"{indexes.name}-rows.json"
    assert indexes.rows_per_epoch() == len(expected)
    fewer = remembered.read_text().replace(str(len(expected)), str(len(expected) - 1))
    for damaged in ("{", '{"rows": 7}', fewer):
        remembered.write_text(damaged)
        assert indexes.rows_per_epoch() == len(expected)
    monkeypatch.setattr(sentence_pairs, "build", None)  # a second start builds nothing
    monkeypatch.setattr(sentence_pairs, "count", None)
    again = of_pairs(store, "train", RULES)
    np.testing.assert_array_equal(again.open(0), expected)
    assert again.rows_per_epoch() == len(expected)


def test_names_tell_everything_an_index_depends_on(store):
    changes = dict(seed=6, phase=0, length=41, pairs="sop", short_rate=0.2)
    rules = [RULES._replace(**{key: value}) for key, value in changes.items()]
    weights = ((2.0,), (2.5,), (1.0, 2.0), (2.0,) * 99, (2.0,) * 98 + (3.0,))
    rules += [RULES._replace(weights=of_sources) for of_sources in weights]
    names = [of_pairs(store, "train", changed).name for changed in (RULES, *rules)]
    names.append(of_pairs(store, "heldout", RULES).name)
    other = store._replace(manifest={**store.manifest, "fingerprint": "other"})
    names.append(of_pairs(other, "train", RULES).name)
    assert len(set(names)) == len(names) and max(map(len, names)) < 200
    assert of_pairs(store, "train", RULES._replace(weights=(1, 1))).name == names[0]


def test_old_epochs_are_deleted(store):
    indexes = of_pairs(store, "train", RULES)
    for epoch in range(4):
        indexes.open(epoch)
    of_pairs(store, "train", RULES._replace(seed=6)).open(0)
    indexes.forget(2)
    left = sorted(path.name for path in (store.path / "index").glob("*.npy"))
    assert [name.split("-epoch")[1] for name in left if "seed5" in name] == ["2.npy", "3.npy"]
    assert len(left) == 3


def test_a_store_that_cannot_be_written_to(store):
    (store.path / "index").write_text("a file, where the directory would be")
    indexes = of_pairs(store, "train", RULES)
    assert len(indexes.open(0)) == indexes.rows_per_epoch() > 0
    indexes.forget(5)
