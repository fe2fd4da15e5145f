"""Blocks of tokens: consecutive, with separators, cut elsewhere in other epochs; too little text."""

import numpy as np
import pytest
from kits.rows import all_rows, assemble, document_stream, phase, settings
from kits.stores import make_store, random_documents

from bert_jax.errors import BadInput
from bert_jax.tasks.text import token_blocks

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
        for name, leaf in dataset.shapes(shape, len(rows)).items():
            assert name not in batch or batch[name].shape == leaf.shape
    assert len(offsets) > 4


def test_too_little_text_is_refused(tmp_path):
    store = make_store(tmp_path / "store", DOCUMENTS, [[[5] * 20, [6] * 41]])  # 62 with its [SEP]
    with pytest.raises(BadInput, match="heldout: 62 tokens"):
        token_blocks.make(settings(LENGTH), store)
    dataset = token_blocks.make(settings(LENGTH - 1), store)
    assert len(all_rows(dataset, phase(LENGTH - 1), split="heldout")) == 1
