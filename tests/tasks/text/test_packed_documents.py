"""Documents packed in rows: every token once, each document a sequence, hardly any padding; masks of held-out rows."""

import numpy as np
import pytest
from kits import rows as kit
from kits.packed import one_pair_per_row
from kits.rows import V, all_rows, assemble, phase, settings, unmasked
from kits.stores import SPECIAL, make_store, random_documents, synthetic_store

from bert_jax.data import stream
from bert_jax.tasks.text import packed_documents

DOCUMENTS = [*random_documents(60, sentences=9), [[7] * 100], [[8, 9] * 20, [10]], [[11]], [[12]]]


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return make_store(tmp_path_factory.mktemp("packed") / "store", DOCUMENTS, vocabulary=V)


def make(store, length, **task):
    return packed_documents.make(settings(length, **task), store, kit.WORD_STARTS)


def pieces(batch) -> list[list[int]]:
    """Returns the tokens of each sequence in order, without [CLS] and [SEP]; checks its arrays."""
    alone, padding = one_pair_per_row(batch), batch["sequence_ids"] == 0
    assert (np.diff(np.where(padding, 10**6, batch["sequence_ids"]), axis=1) >= 0).all()
    assert not (batch["segments"].any() or batch["positions"][padding].any())
    assert not unmasked(batch)[padding].any()
    sizes = alone["sequence_ids"].sum(1)
    places = np.arange(alone["tokens"].shape[1]) * (alone["sequence_ids"] > 0)
    np.testing.assert_array_equal(alone["positions"], places)
    rows = [row[:size].tolist() for row, size in zip(unmasked(alone), sizes, strict=True)]
    assert all((row[0], row[-1]) == (SPECIAL["cls"], SPECIAL["sep"]) for row in rows)
    return [row[1:-1] for row in rows]


@pytest.mark.parametrize("length", [5, 16, 64, 4000])
def test_every_token_is_in_an_epoch_once_and_each_document_is_a_sequence(store, length):
    dataset, shape = make(store, length), phase(length, predictions=2)
    documents = [[i for sentence in document for i in sentence] for document in DOCUMENTS]
    ends = np.cumsum([*map(len, documents)])
    for epoch in range(4):
        rows = all_rows(dataset, shape, epoch)
        batch = assemble(dataset, shape, rows)
        found = pieces(batch)
        assert sum(found, []) == sum(documents, []) and all(found)
        assert np.isin(ends, np.cumsum([*map(len, found)])).all()
        assert len(found) < len(ends) + len(rows)  # cut at ends of rows alone
        real = (batch["sequence_ids"] > 0).sum(1)
        assert real[1:-1].min(initial=length) >= length - 4 and (real == rows[:, 1] + 2).all()


@pytest.mark.parametrize("length", [1024, 8192])
def test_hardly_any_place_is_padding(tmp_path, length):
    store = synthetic_store(tmp_path / "store", 3_000_000)
    shape = phase(length, predictions=length // 3)
    assert make(store, length).survey(shape).real_token_share > 0.99


def test_held_out_rows_have_their_own_mask_rate(store):
    dataset, shape = make(store, 64, mask_rate=0.4, heldout_mask_rate=0.2), phase(64, 8, 30)
    evaluated = stream.EvaluationBatches(dataset, shape, "heldout", 8, 8)
    for rate, batches in ((0.4, kit.batches(dataset, shape, 0, 3)), (0.2, evaluated)):
        for batch in batches:
            number = np.rint(rate * (batch["sequence_ids"] > 0).sum(1)) * batch["row_weights"]
            np.testing.assert_array_equal(batch["masked_weights"].sum(1), number)
    more = make(store, 64, mask_rate=0.1, heldout_mask_rate=0.4)
    assert more.survey(phase(64, 8, 20)).warnings
