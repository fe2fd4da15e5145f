"""Blocks of tokens: consecutive, with separators, cut elsewhere in other epochs, on any host; too little text."""

import numpy as np
import pytest
from kits.rows import all_rows, assemble, batches, document_stream, phase, settings
from kits.stores import make_store, random_documents

from bert_jax.errors import BadInput
from bert_jax.tasks import token_blocks

DOCUMENTS = random_documents(40)
LENGTH = 32


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return make_store(tmp_path_factory.mktemp("blocks") / "store", DOCUMENTS)


def test_blocks_are_the_stream_of_documents(store):
    dataset, shape = token_blocks.make(settings(LENGTH), store), phase(LENGTH)
    expected, offsets = np.array(document_stream(DOCUMENTS)), set()
    for epoch in range(8):
        rows = all_rows(dataset, shape, epoch)
        batch = assemble(dataset, shape, rows)
        offset = int(rows[0])
        end = offset + len(rows) * LENGTH
        np.testing.assert_array_equal(batch["tokens"].ravel(), expected[offset:end])
        assert 0 <= offset < LENGTH and len(expected) - 2 * LENGTH < len(rows) * LENGTH
        offsets.add(offset)
        assert (batch["sequence_ids"] == 1).all() and (batch["positions"] == range(LENGTH)).all()
        assert (batch["next_weights"] == (np.arange(LENGTH) < LENGTH - 1)).all()
    assert len(offsets) > 4
    other = token_blocks.make(settings(LENGTH, seed=2), store)
    for split, equal in (("train", False), ("heldout", True)):
        rows = [all_rows(made, shape, split=split) for made in (dataset, other)]
        assert np.array_equal(*rows) == equal


def test_batches_do_not_depend_on_hosts(store):
    dataset, shape = token_blocks.make(settings(LENGTH), store), phase(LENGTH, batch=6)
    whole = batches(dataset, shape, 0, 50)
    for expected, batch in zip(whole[30:], batches(dataset, shape, 30, 50, [4, 1]), strict=True):
        assert {n: (a.shape, a.dtype) for n, a in expected.items()} == {
            name: (leaf.shape, leaf.dtype) for name, leaf in dataset.shapes(shape, 6).items()
        }
        for name, array in batch.items():
            np.testing.assert_array_equal(array, expected[name][[4, 1]])


def test_too_little_text_is_refused(tmp_path):
    store = make_store(tmp_path / "store", DOCUMENTS, [[[5] * 20, [6] * 41]])  # 62 with its [SEP]
    with pytest.raises(BadInput, match="heldout: 62 tokens"):
        token_blocks.make(settings(LENGTH), store)
    dataset = token_blocks.make(settings(LENGTH - 1), store)
    assert len(all_rows(dataset, phase(LENGTH - 1), split="heldout")) == 1
