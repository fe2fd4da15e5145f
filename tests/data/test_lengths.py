"""Length by batch: rows of similar sizes share a batch, which is cut to one of a few lengths."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from kits import labelled
from kits.rows import check_starts_and_hosts

from bert_jax import config as configs
from bert_jax.data import stream
from bert_jax.tasks import base as tasks
from bert_jax.tasks.supervised import examples

ROWS, BATCH, LENGTH = 150, 8, 64


@pytest.fixture(scope="module")
def task(tmp_path_factory):
    """(dataset, phase) of 150 texts of many sizes, with rows of up to 64 tokens."""
    directory = tmp_path_factory.mktemp("lengths")
    data = labelled.sentences(directory / "data", ROWS, 30)
    keys = {"task.data": data, "store": directory / "store", "init_from": "x"}
    keys |= {"phases.main.length": LENGTH, "phases.main.batch": BATCH}
    config = labelled.load("glue:sst2", keys)
    store = examples.open_or_build(config, labelled.tokenizer())
    tasks.fill(config, store)
    return tasks.make(config, store), configs.phases(config)[0]


def pipeline(task, seed=1, positions=None):
    dataset, phase = task
    return stream.Pipeline(dataset, phase, "train", seed, BATCH, positions)


def batches(task, first, last, positions=None):
    return list(stream.batches(pipeline(task, positions=positions), first, last))


def test_a_batch_is_as_long_as_its_longest_row_needs(task):
    lengths = task[0].lengths(task[1], "train")
    assert lengths == [8, 16, 24, 32, 64]
    seen, made = set(), pipeline(task)
    for step, batch in enumerate(batches(task, 0, 18)):
        rows = made.order.choose(np.arange(step * BATCH, (step + 1) * BATCH), 0)
        size, length = task[0].sizes(rows).max(), batch["tokens"].shape[1]
        assert length == min(each for each in lengths if each >= size)
        assert batch["segments"].shape == batch["positions"].shape == (BATCH, length)
        seen.add(length)
    assert len(seen) > 1


def test_rows_that_are_full_are_cut_where_they_are_evaluated_alone(task):
    dataset = replace(task[0], cuts_training=False)
    assert dataset.lengths(task[1], "train") == [LENGTH]
    assert dataset.lengths(task[1], "dev") == [16, 32, LENGTH]
    full = (dataset, task[1])
    assert {batch["tokens"].shape[1] for batch in batches(full, 0, 18)} == {LENGTH}
    evaluated = stream.EvaluationBatches(*full, "dev", ROWS, BATCH)
    shapes = [batch["tokens"].shape[1] for batch in evaluated]
    assert shapes == sorted(shapes) and len({*shapes}) > 1


def test_an_epoch_has_each_row_once_in_an_order_of_its_own(task):
    made = pipeline(task)
    orders = [made.order.places(np.arange(ROWS), epoch) for epoch in (0, 1)]
    other = pipeline(task, seed=2).order.places(np.arange(ROWS), 0)
    for order in (*orders, other):
        np.testing.assert_array_equal(np.sort(order), np.arange(ROWS))
    assert (orders[0] != orders[1]).any() and (orders[0] != other).any()
    trained = [made.order.places(np.arange(18 * BATCH), epoch) for epoch in range(20)]
    assert len(np.unique(trained)) == ROWS  # also those that fill no batch of an epoch
    sizes = task[0].sizes(task[0].rows(task[1], "train", 0))[orders[0]][: 18 * BATCH]
    means = sizes.reshape(18, BATCH).mean(1)
    assert np.diff(means).min() < 0 < np.diff(means).max()  # lengths are mixed over the epoch
    assert sizes.reshape(18, BATCH).std(1).mean() < sizes.std() / 3


def test_any_start_and_any_hosts_have_the_same_batches(task):
    check_starts_and_hosts(partial(batches, task), 40)


def test_rows_that_are_evaluated_depend_on_no_seed_and_come_once(task):
    dataset, phase = task
    made = stream.EvaluationBatches(dataset, phase, "dev", 20, BATCH)
    tokens = [row[row > 0] for batch in made for row in batch["tokens"][batch["row_weights"] > 0]]
    rows = made.chosen()
    assert len(tokens) == len(rows) == 20 == len(set(rows[:, 0, 4]))
    assert [len(row) for row in tokens] == dataset.sizes(rows).tolist()
    places = made.order.places(np.arange(made.rows), 0)
    np.testing.assert_array_equal(rows, dataset.rows(phase, "dev", 0)[places])
