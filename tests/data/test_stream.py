"""The stream: batch contract, resuming at any step, any split over hosts, phases, held-out rows, closing."""

from functools import partial

import numpy as np
import pytest
from kits import pairs
from kits.rows import WORD_STARTS, assert_same, check_starts_and_hosts, unmasked
from kits.stores import SPECIAL, make_store, random_documents

from bert_jax.data import stream
from bert_jax.tasks.text import mlm_batch

SPEC = pairs.Spec(seed=11, phase=0, length=48, batch=8, max_predictions=7)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """A store with about 120 rows, or 15 steps, per epoch."""
    path = tmp_path_factory.mktemp("stream") / "store"
    return make_store(path, random_documents(22), random_documents(9, seed=1))


def batches(store, first, last, positions=None, **changes):
    spec = SPEC._replace(**changes)
    return list(pairs.train_batches(store, WORD_STARTS, spec, first, last, positions))


def rows_at(batches, positions):
    return [{name: array[positions] for name, array in batch.items()} for batch in batches]


@pytest.mark.parametrize("masking", ["token", "whole_word", "ngram"])
@pytest.mark.parametrize("task", ["nsp", "sop", "none"])
def test_batches_fulfil_the_contract(store, task, masking):
    """Their rows are the pairs of the epoch, with special tokens around them, and these are never masked."""
    changes, ids = dict(pair_task=task, masking=masking), store.splits["train"].tokens.tolist()
    expected = {n: (s.shape, s.dtype) for n, s in mlm_batch.shapes(8, 48, 7).items()}
    source = pairs.pipeline(store, SPEC._replace(**changes), WORD_STARTS)
    for step, batch in enumerate(batches(store, 0, 4, **changes)):
        assert {name: (array.shape, array.dtype) for name, array in batch.items()} == expected
        assert (batch["pair_weights"] == (task != "none")).all()
        assert not batch["cls_positions"].any() and (batch["rows"] == range(8)).all()
        chosen = source.order.choose(8 * step + np.arange(8), 0)[:, 0]
        np.testing.assert_array_equal(batch["pair_labels"][:, 0], chosen[:, 4])
        shown = batch | {"tokens": unmasked(batch)}
        for row, (a, size, b, more, _) in enumerate(chosen.tolist()):
            first = [SPECIAL["cls"], *ids[a : a + size], SPECIAL["sep"]]
            second = [*ids[b : b + more], SPECIAL["sep"]] if task != "none" else []
            length = len(first + second)
            padding = [0] * (48 - length)
            assert shown["tokens"][row].tolist() == first + second + padding
            assert shown["segments"][row].tolist() == [0] * len(first) + [1] * len(second) + padding
            assert shown["positions"][row].tolist() == [*range(length)] + padding
            assert shown["sequence_ids"][row].tolist() == [1] * length + padding
            targets = batch["masked_targets"][row][batch["masked_weights"][row] > 0].tolist()
            assert 0 < len(targets) <= min(7, max(1, round(0.15 * length)))
            assert not {*targets} & {*SPECIAL.values()}


@pytest.mark.full
def test_windows_and_groups_of_epochs_do_not_change_batches(store, monkeypatch):
    whole = batches(store, 0, 40)
    for window, short in ((48, 1), (120, 1000)):
        monkeypatch.setattr(stream, "WINDOW", window)
        monkeypatch.setattr(stream, "SHORT", short)
        assert_same(batches(store, 3, 40), whole[3:])


@pytest.mark.slow
@pytest.mark.parametrize("masking", ["token", "whole_word"])
def test_any_start_and_any_hosts_have_the_same_batches(store, masking):
    epoch = pairs.steps_per_epoch(store, SPEC)
    assert 5 < epoch < 40
    check_starts_and_hosts(partial(batches, store, masking=masking), 2 * epoch + 3)


def test_epochs_phases_and_seeds_differ(store):
    epoch = pairs.steps_per_epoch(store, SPEC)
    (first,), (second,) = batches(store, 0, 1), batches(store, epoch, epoch + 1)
    others = [batches(store, 0, 1, **change)[0] for change in ({"phase": 1}, {"seed": 12})]
    for batch in (second, *others):
        assert (unmasked(batch) != unmasked(first)).any(1).all()


def test_masks_are_new_in_every_epoch(tmp_path):
    """Two documents of one sentence give the same rows in every epoch, with different masks."""
    documents = [[list(range(5, 45))], [list(range(50, 90))]]
    store = make_store(tmp_path / "store", documents)
    made = batches(store, 0, 30, pair_task="none", batch=2, length=64, short_rate=0.0)
    rows = {tuple(map(tuple, np.sort(unmasked(batch), 0))) for batch in made}
    orders = [batch["tokens"][:, 1].argsort() for batch in made]
    masks = {tuple(b["masked_positions"][o].ravel()) for b, o in zip(made, orders, strict=True)}
    assert len(rows) == 1 and len(masks) == 30


def test_an_epoch_has_every_row_once_and_wraps_if_it_is_short(store):
    """The order of an epoch is a permutation of its rows."""
    source = pairs.pipeline(store, SPEC, WORD_STARTS)
    number = len(source.order.epochs.open(0))
    counts = {epoch: len(source.order.epochs.open(epoch)) for epoch in range(8)}
    assert min(counts.values()) < number < max(counts.values())
    for epoch, count in counts.items():
        rows = source.order.choose(np.arange(number), epoch)
        first = min(number, count)
        assert len(np.unique(rows[:first, 0], axis=0)) == first
        np.testing.assert_array_equal(rows[first:], rows[: number - first])


@pytest.mark.parametrize("size, rows", [(7, 5), (8, 10**9), (100, 21)])
def test_every_heldout_row_appears_once(store, size, rows):
    available = len(pairs.epoch_rows(store, SPEC, split="heldout"))
    heldout = pairs.heldout(store, WORD_STARTS, SPEC._replace(batch=size), rows)
    made, number = list(heldout), min(rows, available)
    assert len(made) == -(-number // size)
    weights = np.concatenate([batch["pair_weights"][:, 0] for batch in made])
    assert weights.sum() == number and (weights[:number] == 1).all()
    masked = np.concatenate([batch["masked_weights"] for batch in made])
    assert (masked[:number].sum(1) >= 1).all() and not masked[number:].any()
    assert_same(list(heldout), made)
    host = np.array([4, 0, 1])
    part = pairs.heldout(store, WORD_STARTS, SPEC._replace(batch=size), rows, host)
    assert_same(list(part), rows_at(made, host))
    tokens = np.concatenate([unmasked(batch) for batch in made])[:number]
    assert set(tokens.flat) <= {*store.splits["heldout"].tokens.tolist(), *SPECIAL.values()}


def test_heldout_rows_and_masks_do_not_depend_on_the_seed_or_the_phase(store):
    changes = {}, {"seed": 12, "phase": 3}
    first, second = (pairs.heldout(store, WORD_STARTS, SPEC._replace(**c), 50) for c in changes)
    assert_same(list(first), list(second))
