"""Files of row indexes beside the store: used again, checked, made anew, deleted."""

import numpy as np
import pytest
from kits.stores import make_store, random_documents

from bert_jax.data import row_index, sentence_pairs
from bert_jax.data.row_index import of_pairs

RULES = sentence_pairs.Rules(seed=5, phase=1, length=40, pairs="nsp", short_rate=0.3)


@pytest.fixture
def store(tmp_path):
    return make_store(tmp_path / "store", random_documents(40))


def test_index_files_are_reused_and_rebuilt_when_cut(store):
    indexes = of_pairs(store, "train", RULES)
    expected = np.array(indexes.open(0))
    path = indexes.path(0)
    whole = path.read_bytes()
    for damaged in (b"", whole[:100], whole[:-8], whole[:80] + b"x" + whole[81:]):
        path.write_bytes(damaged)
        np.testing.assert_array_equal(indexes.open(0), expected)
        assert path.read_bytes() == whole
    again = of_pairs(store, "train", RULES)
    again.build = None  # a second start builds nothing
    np.testing.assert_array_equal(again.open(0), expected)


def test_a_file_that_another_process_has_written_meanwhile_stays(store):
    """Another host may have mapped it."""
    indexes = of_pairs(store, "train", RULES)
    there, expected = indexes.path(3), np.array(indexes.open(3))
    content = there.read_bytes()
    there.unlink()

    def build(epoch, cancelled):
        yield expected
        there.write_bytes(content)

    indexes.build = build
    np.testing.assert_array_equal(indexes.open(3), expected)
    assert [path.name for path in there.parent.iterdir()] == [there.name]


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
    assert [name.split("-epoch")[1] for name in left if "seed5" in name] == [
        f"{n}.npy" for n in (0, 2, 3)
    ]
    assert len(left) == 4


def test_a_read_only_store_gives_the_indexes_that_it_has(store, monkeypatch):
    indexes = of_pairs(store, "train", RULES)
    expected, content = np.array(indexes.open(1)), indexes.path(1).read_bytes()
    row_index.place.cache_clear()
    monkeypatch.setattr(row_index.os, "access", lambda path, mode: False)
    elsewhere = of_pairs(store, "train", RULES)
    build, elsewhere.build = elsewhere.build, None
    np.testing.assert_array_equal(elsewhere.open(1), expected)
    elsewhere.build = build
    elsewhere.open(2)
    elsewhere.forget(9)
    assert [path.name for path in indexes.directory.iterdir()] == [indexes.path(1).name]
    assert indexes.path(1).read_bytes() == content


def test_a_store_that_cannot_be_written_to(store):
    (store.path / "index").write_text("a file, where the directory would be")
    indexes = of_pairs(store, "train", RULES)
    assert len(indexes.open(0))
    indexes.forget(5)
