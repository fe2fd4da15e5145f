"""Blocks of tokens: consecutive, with separators, cut elsewhere in other epochs; windows predict each token once."""

import numpy as np
import pytest
from kits.rows import SPECIAL, all_rows, assemble, document_stream, phase, settings
from kits.stores import make_store, random_documents

from bert_jax import config as configs
from bert_jax.errors import BadInput
from bert_jax.tasks.text import token_blocks

DOCUMENTS = random_documents(40)
HELDOUT = [[[5]], *random_documents(7, seed=1), [[6, 7]]]
LENGTH = 32


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return make_store(tmp_path_factory.mktemp("blocks") / "store", DOCUMENTS, HELDOUT)


def make(store, length=LENGTH, cross_documents=True):
    return token_blocks.make(settings(length, cross_documents=cross_documents), store)


def predictions(batch) -> tuple[list[int], list[list[int]]]:
    """Returns the tokens that are predicted, in order, and the tokens of the row up to each."""
    targets = []
    contexts = []
    for row, tokens in enumerate(batch["tokens"].tolist()):
        for place in np.flatnonzero(batch["next_weights"][row]):
            contexts.append(tokens[: place + 1])
            targets.append(tokens[place + 1])
    return targets, contexts


def test_blocks_are_the_stream_of_documents(store):
    dataset, shape = make(store), phase(LENGTH)
    expected, offsets = np.array(document_stream(DOCUMENTS)), set()
    for epoch in range(8):
        rows = all_rows(dataset, shape, epoch)
        batch = assemble(dataset, shape, rows)
        offset = int(rows[0, 0])
        end = offset + len(rows) * LENGTH
        np.testing.assert_array_equal(batch["tokens"].ravel(), expected[offset:end])
        assert 0 <= offset < LENGTH and len(expected) - 2 * LENGTH < len(rows) * LENGTH
        offsets.add(offset)
        assert (batch["sequence_ids"] == 1).all() and (batch["positions"] == range(LENGTH)).all()
        assert (batch["next_weights"] == (np.arange(LENGTH) < LENGTH - 1)).all()
        for name, leaf in dataset.shapes(shape, len(rows)).items():
            assert name not in batch or batch[name].shape == leaf.shape
    assert len(offsets) > 4 and dataset.survey(shape).real_token_share == 1


@pytest.mark.parametrize("length", [2, 3, LENGTH, 2000])
def test_held_out_windows_predict_every_token_once(store, length):
    """A window may be longer than all of the text."""
    dataset, shape = make(store, length), phase(length)
    rows = all_rows(dataset, shape, split="heldout")
    batch = assemble(dataset, shape, rows, split="heldout")
    targets, contexts = predictions(batch)
    stream = document_stream(HELDOUT)
    assert targets == stream and contexts[0] == [SPECIAL["sep"]]
    assert [row[-1] for row in contexts] == [SPECIAL["sep"], *stream[:-1]]


@pytest.mark.parametrize("length", [2, 3, 19, LENGTH, 400])
def test_windows_within_documents_predict_every_token_once(store, length):
    """From the tokens of its own document before it, and a separator; a padded place is of no sequence."""
    dataset, shape = make(store, length, cross_documents=False), phase(length)
    rows = all_rows(dataset, shape)
    batch = assemble(dataset, shape, rows)
    targets, contexts = predictions(batch)
    assert targets == document_stream(DOCUMENTS)
    document = 0
    before = []
    for target, context in zip(targets, contexts, strict=True):
        text = [SPECIAL["sep"], *before]
        assert context == text[-len(context) :]
        assert len(context) == 1 + (len(text) - 1) % (length - 1)
        before.append(target)
        if target == SPECIAL["sep"]:
            before = []
            document += 1
    assert document == len(DOCUMENTS)
    real = batch["sequence_ids"] == 1
    assert (real.sum(axis=1) == rows[:, 1]).all() and (
        batch["next_weights"][:, :-1] == real[:, 1:]
    ).all()
    assert (batch["positions"] == np.where(real, np.arange(length), 0)).all()
    assert not batch["next_weights"][:, -1].any() and set(batch["sequence_ids"].ravel()) <= {0, 1}
    assert dataset.survey(shape).real_token_share == pytest.approx(real.mean())
    assert all_rows(dataset, shape, epoch=1).tolist() == rows.tolist()


def test_too_little_text_is_refused(tmp_path):
    store = make_store(tmp_path / "store", [[[5] * 20, [6] * 41]], HELDOUT)  # 62 with its [SEP]
    with pytest.raises(BadInput, match="^config.phases.main.length=32: .* 62 tokens"):
        make(store)
    dataset = make(store, LENGTH - 1)
    assert len(all_rows(dataset, phase(LENGTH - 1))) == 1
    assert len(all_rows(make(store, cross_documents=False), phase(LENGTH))) == 2


def test_rows_without_a_token_to_predict_are_refused():
    keys = ["objective.name=causal_lm", "task.name=token_blocks", "phases.main.length=1"]
    with pytest.raises(BadInput, match="phases.main.length"):
        configs.load("base", keys)
