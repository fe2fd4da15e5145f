"""RoBERTa's rows: every token once and in order, whole sentences, separators; masks, epochs and hosts of all rows that
are ranges of the documents."""

from functools import partial

import numpy as np
import pytest
from kits import rows as kit
from kits.rows import all_rows, assemble, batches, phase, settings, unmasked
from kits.stores import SPECIAL, make_store, random_documents

from bert_jax.tasks.text import documents, full_sentences, packed_documents, token_blocks

# Some sentences are longer than a row of 16, and some rows of 64 hold several documents.
DOCUMENTS = [*random_documents(60, sentences=9), [[7] * 100], [[8, 9] * 20, [10]], [[11]]]
CLS, SEP = SPECIAL["cls"], SPECIAL["sep"]


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return make_store(tmp_path_factory.mktemp("rows") / "store", DOCUMENTS, vocabulary=kit.V)


def make(store, length, cross=True, seed=1, **task):
    config = settings(length, seed, cross_documents=cross, **task)
    return full_sentences.make(config, store, kit.WORD_STARTS)


def texts(store, length, cross, epoch=0):
    """Returns the tokens of each row between [CLS] and the last [SEP], in the order of the text."""
    dataset, shape = make(store, length, cross), phase(length, predictions=min(5, length - 2))
    batch = assemble(dataset, shape, all_rows(dataset, shape, epoch))
    tokens, real = unmasked(batch), batch["sequence_ids"].sum(1)
    assert (tokens[:, 0] == CLS).all() and not batch["segments"].any()
    assert (tokens[np.arange(len(tokens)), real - 1] == SEP).all()
    for row, size in zip(tokens, real, strict=True):
        assert (row[size:] == SPECIAL["pad"]).all()
    position = np.arange(length) * (batch["sequence_ids"] > 0)
    np.testing.assert_array_equal(batch["positions"], position)
    return [row[1 : size - 1].tolist() for row, size in zip(tokens, real, strict=True)]


@pytest.mark.parametrize("length", [5, 16, 64, 4000])
@pytest.mark.parametrize("cross", [True, False])
def test_every_token_is_in_an_epoch_once_and_in_order(store, monkeypatch, length, cross):
    """Also if an epoch has many blocks."""
    for epoch, block in ((0, documents.BLOCK), (2, 20)):
        monkeypatch.setattr(documents, "BLOCK", block)
        rows = texts(store, length, cross, epoch)
        assert all(row[0] != SEP and row[-1] != SEP for row in rows)
        rest = iter(kit.document_stream(DOCUMENTS))
        following = next(rest)
        for token in (token for row in rows for token in row):
            if following == SEP and token != SEP:  # the last [SEP] of the row before
                following = next(rest)
            assert token == following
            following = next(rest)
        assert [following, *rest] == [SEP]


@pytest.mark.parametrize("cross", [True, False])
def test_rows_end_with_a_sentence_unless_it_is_longer(store, cross):
    split, length = store.splits["train"], 16
    begins, ends, owner, _, lasts = documents.sentences(split, np.arange(len(split.document_ends)))
    begins, ends, document_ends = begins + owner, ends + owner, lasts[owner] + 1
    rows = all_rows(make(store, length, cross), phase(length))
    start, end = rows[:, 0], rows.sum(1)
    sentence = np.searchsorted(ends, end)  # of the last token
    cut = ends[sentence] != end
    assert 0 < cut.sum() < len(rows) / 2 and (rows[cut, 1] == length - 2).all()
    assert (start >= begins[sentence])[cut].all()  # only this sentence is in the row
    first = np.searchsorted(ends, start, side="right")
    if not cross:
        np.testing.assert_array_equal(document_ends[first], document_ends[sentence])
    # No row could take the next sentence, but those that restart and those at an end.
    full = ends[np.minimum(sentence + 1, len(ends) - 1)] - start > length - 2
    at_end = sentence + 1 == (len(ends) if cross else document_ends[sentence])
    restarted = cross & (np.arange(len(rows)) % full_sentences.RESTART == 0)
    assert (cut | full | at_end | restarted).all()


@pytest.mark.parametrize("task", [full_sentences, packed_documents, token_blocks])
def test_epochs_and_seeds_differ_and_repeat(tmp_path, task):
    store = make_store(tmp_path / "store", random_documents(2000, sentences=30), vocabulary=kit.V)

    def rows(epoch, seed=1, split="train", number=0):
        dataset = task.make(settings(128, seed, cross_documents=True), store)
        return all_rows(dataset, phase(128, number=number), epoch, split).tolist()

    first = {*map(str, rows(0))}
    for other in (rows(1), rows(0, seed=2), rows(0, number=1)):
        assert len(first.intersection(map(str, other))) < 0.95 * len(first)
    assert {*map(str, rows(0))} == first
    assert rows(0, split="heldout") == rows(0, 2, "heldout", 1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("task", "masking"),
    [
        (full_sentences, "token"),
        pytest.param(full_sentences, "whole_word", marks=pytest.mark.full),
        pytest.param(packed_documents, "ngram", marks=pytest.mark.full),
        (packed_documents, "span"),
    ],
)
def test_batches_do_not_depend_on_hosts_and_masks_are_of_tokens_alone(store, task, masking):
    config = settings(64, cross_documents=True, masking=masking)
    dataset, shape = task.make(config, store, kit.WORD_STARTS), phase(64, batch=6)
    kit.check_starts_and_hosts(partial(batches, dataset, shape), 20)
    whole = batches(dataset, shape, 0, 20)
    expected = {name: (leaf.shape, leaf.dtype) for name, leaf in dataset.shapes(shape, 6).items()}
    for batch in whole:
        assert {name: (array.shape, array.dtype) for name, array in batch.items()} == expected
        assert not np.isin(batch["masked_targets"][batch["masked_weights"] > 0], [CLS, SEP]).any()
        specials = np.isin(unmasked(batch), [CLS, SEP])
        assert (batch["tokens"][specials] == unmasked(batch)[specials]).all()
    assert sum(batch["masked_weights"].sum() for batch in whole) > 400


def test_a_whole_word_starts_anew_after_a_separator(tmp_path):
    """All pieces continue a word, so each document is one word. Fewer tokens than a word has are left for parts."""
    store = make_store(tmp_path / "store", [[[9] * 5]] * 40, vocabulary=kit.V)
    dataset, shape = make(store, 64, masking="whole_word", mask_rate=0.5), phase(64, predictions=30)
    for batch in batches(dataset, shape, 0, 1):
        chosen = kit.chosen(batch)
        words = chosen[:, 1:61].reshape(len(chosen), 10, 6)[:, :, :5]  # without separators
        assert (words.sum(2) % 5).sum(1).max() < 5
        assert words.all(2).any()


def test_the_survey_is_of_all_rows(store):
    shape = phase(64, predictions=3)
    dataset = make(store, 64)
    rows = all_rows(dataset, shape)
    survey = dataset.survey(shape)
    assert survey.real_token_share == pytest.approx((rows[:, 1] + 2).mean() / 64)
    assert "max_predictions=3" in survey.warnings[0]
