"""Opening a store: an altered or damaged one is refused, with the file's name; files of any size are mapped."""

import json
import os

import numpy as np
import pytest
from kits.damage import flip_bit
from kits.stores import make_store

from bert_jax.data import assemble
from bert_jax.data import store as stores
from bert_jax.errors import BadInput


@pytest.fixture
def path(tmp_path):
    documents = [[[5, 6], [7, 8, 9]], [[5, 5]]]
    return make_store(tmp_path / "store", documents, vocabulary=10).path


def test_a_store_is_read_as_it_was_written(path):
    train = stores.open_store(path, hashes=True).splits["train"]
    assert train.tokens.tolist() == [5, 6, 7, 8, 9, 5, 5] and isinstance(train.tokens, np.memmap)
    assert train.sentence_ends.tolist() == [2, 5, 7] and train.document_ends.tolist() == [2, 3]


@pytest.mark.parametrize("name", ["train/tokens.npy", "heldout/document_ends.npy", "unigrams.npy"])
def test_damaged_files_are_named(path, name):
    file = path / name
    flip_bit(file)
    stores.open_store(path)
    with pytest.raises(BadInput, match=str(file)):
        stores.open_store(path, hashes=True)
    for damage in (lambda: os.truncate(file, 140), file.unlink):
        damage()
        with pytest.raises(BadInput, match=str(file)):
            stores.open_store(path)


def test_a_directory_that_is_not_a_store_is_refused(path, tmp_path):
    with pytest.raises(BadInput, match="manifest.json"):
        stores.open_store(tmp_path)
    manifest = json.loads((path / "manifest.json").read_text())
    wrong = {"format": 0}, {"vocabulary": 1}, {"digest": 1, "format": None}
    for text in ["{", "[]", *(json.dumps(manifest | each) for each in wrong)]:
        (path / "manifest.json").write_text(text)
        with pytest.raises(BadInput, match="manifest.json"):
            stores.open_store(path)


def test_a_file_larger_than_memory_can_be_mapped(tmp_path):
    """A sparse file of 8 TB, with data only at both ends."""
    path, size = tmp_path / "tokens.npy", 1 << 42
    with open(path, "wb") as file:
        header = {"descr": "<u2", "fortran_order": False, "shape": (size,)}
        np.lib.format.write_array_header_1_0(file, header)
        file.seek(2 * size - 2, 1)
        file.write(np.uint16(77).tobytes())
    tokens = assemble.map_file(path)
    assert tokens.shape == (size,) and tokens.dtype == "uint16" and tokens[size - 1] == 77
