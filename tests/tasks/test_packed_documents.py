"""Documents packed in rows: every token once, each document on its own, hardly any padding; masks of held-out rows."""

import numpy as np
import pytest
from kits import rows as kit
from kits.rows import V, all_rows, assemble, phase, settings, unmasked
from kits.stores import SPECIAL, make_store, random_documents, synthetic_store

from bert_jax.data import stream
from bert_jax.tasks import packed_documents

DOCUMENTS = [*random_documents(60, sentences=9), [[7] * 100], [[8, 9] * 20, [10]], [[11]], [[12]]]


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return make_store(tmp_path_factory.mktemp("packed") / "store", DOCUMENTS, vocabulary=V)


def make(store, length, seed=1, **task):
    return packed_documents.make(settings(length, seed, **task), store, kit.WORD_STARTS)


def pieces(batch):
    """Yields the tokens of each sequence in order, without [CLS] and [SEP]; checks its arrays."""
    assert not batch["segments"].any()
    for row, tokens in enumerate(unmasked(batch)):
        ids, starts = batch["sequence_ids"][row], batch["cls_positions"][row]
        count = ids.max()
        assert count >= 1 and not starts[count:].any()
        assert (
            ids == np.sort(np.where(ids, ids, count + 1)) % (count + 1)
        ).all()  # padding is last
        for number, start in enumerate(starts[:count], 1):
            places = np.flatnonzero(ids == number)
            assert places[0] == start and len(places) > 2
            assert (batch["positions"][row, places] == range(len(places))).all()
            first, *piece, last = tokens[places]
            assert (first, last) == (SPECIAL["cls"], SPECIAL["sep"])
            yield piece
        assert not tokens[ids == 0].any() and not batch["positions"][row, ids == 0].any()


@pytest.mark.parametrize("length", [5, 16, 64, 4000])
def test_every_token_is_in_an_epoch_once_and_each_document_is_a_sequence(store, length):
    dataset, shape = make(store, length), phase(length, predictions=2)
    cuts, offsets = np.cumsum([sum(map(len, document)) for document in DOCUMENTS]), set()
    for epoch in range(4):
        rows = all_rows(dataset, shape, epoch)
        batch = assemble(dataset, shape, rows)
        found = [*pieces(batch)]
        expected = [i for document in DOCUMENTS for sentence in document for i in sentence]
        assert [i for piece in found for i in piece] == expected
        assert np.isin(cuts, np.cumsum([*map(len, found)])).all()
        assert len(found) < len(cuts) + len(rows)  # cut at ends of rows alone
        assert (batch["sequence_ids"] == 0).sum(1)[1:-1].max(initial=0) <= 4
        np.testing.assert_array_equal((batch["sequence_ids"] > 0).sum(1), rows[:, 1] + 2)
        offsets.add(int(rows[0, 1]))
    assert len(offsets) > 1


def test_seeds_cut_elsewhere_but_not_held_out_rows(store):
    for split, equal in (("train", False), ("heldout", True)):
        first, *others = (
            all_rows(make(store, 64, seed), phase(64, number=number), 0, split)
            for seed, number in ((1, 0), (2, 0), (1, 1))
        )
        assert [np.array_equal(first, other) for other in others] == [equal] * 2


@pytest.mark.parametrize("length", [1024, 8192])
def test_hardly_any_place_is_padding(tmp_path, length):
    store = synthetic_store(tmp_path / "store", 3_000_000)
    shape = phase(length, predictions=length // 3)
    assert make(store, length).survey(shape).real_token_share > 0.99


@pytest.mark.parametrize("rates", [(0.4, 0.15), (0.3, 0.0)])
def test_held_out_rows_have_their_own_mask_rate(store, rates):
    train, heldout = rates
    shape = phase(64, predictions=30)
    dataset = make(store, 64, mask_rate=train, heldout_mask_rate=heldout)
    evaluated = stream.Evaluation(dataset, shape, "heldout", 8, 8)
    for rate, batches in (
        (train, kit.batches(dataset, shape, 0, 3)),
        (heldout or train, evaluated),
    ):
        for batch in batches:
            batch = {name: array[batch["row_weights"] > 0] for name, array in batch.items()}
            real = (batch["sequence_ids"] > 0).sum(1)
            number = np.maximum(1, np.rint(rate * real))
            assert (batch["masked_weights"].sum(1) == number).all()
    few = make(store, 64, mask_rate=0.1, heldout_mask_rate=heldout or train)
    assert few.survey(phase(64, predictions=8)).warnings
