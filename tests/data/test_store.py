"""A store that is not what was written is refused by the file's name."""

import json

import numpy as np
import pytest

from bert_jax.data import store as stores
from bert_jax.errors import BadInput


@pytest.fixture
def path(tmp_path):
    """A store of four documents, two of them held out."""
    for name, tokens in zip(stores.SPLITS, ([5, 6, 7, 8, 9], [5, 5, 6]), strict=True):
        (tmp_path / name).mkdir()
        arrays = np.array(tokens, np.uint16), np.array([2, len(tokens)]), np.array([1, 2])
        for array, values in zip(stores.ARRAYS, arrays, strict=True):
            np.save(tmp_path / name / f"{array}.npy", values)
    np.save(tmp_path / "unigrams.npy", np.ones((1, 10), np.int64))
    manifest = {"fingerprint": "f", "made_from": {}, "special": {}}
    manifest["sources"] = [{"source": "made", "documents": {"train": 2, "heldout": 2}}]
    stores.write_manifest(tmp_path, manifest | {"unigram_entropy": 1.0, "vocabulary": 10})
    return tmp_path


def test_reads_what_was_written(path):
    store = stores.open_store(path, hashes=True)
    assert store.fingerprint == "f" and set(store.splits) == {"train", "heldout"}
    train = store.splits["train"]
    assert train.tokens.tolist() == [5, 6, 7, 8, 9] and isinstance(train.tokens, np.memmap)
    assert train.sentence_ends.tolist() == [2, 5] and train.document_ends.tolist() == [1, 2]
    assert set(store.manifest["files"]) >= {"unigrams.npy", "train/tokens.npy"}


@pytest.mark.parametrize("name", ["train/tokens.npy", "heldout/document_ends.npy", "unigrams.npy"])
def test_damage_is_found(path, name):
    file = path / name
    content = file.read_bytes()
    file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))  # one bit
    stores.open_store(path)
    with pytest.raises(BadInput, match=f"{file}: altered"):
        stores.open_store(path, hashes=True)
    file.write_bytes(content[:-1])
    with pytest.raises(BadInput, match=f"{file}: {len(content) - 1} bytes, {len(content)} in"):
        stores.open_store(path)
    file.unlink()
    with pytest.raises(BadInput, match=f"{file}: missing"):
        stores.open_store(path)


def test_what_is_no_store(path, tmp_path_factory):
    with pytest.raises(BadInput, match="no manifest.json"):
        stores.open_store(tmp_path_factory.mktemp("empty"))
    manifest = json.loads((path / "manifest.json").read_text())
    for text in ["{", "[]", json.dumps(manifest | {"format": 0})]:
        (path / "manifest.json").write_text(text)
        with pytest.raises(BadInput, match="manifest.json"):
            stores.open_store(path)
