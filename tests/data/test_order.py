"""The order of rows over phases: one of the same shape goes on where the last one stopped, whatever its batch."""

import numpy as np
import pytest
from bert_jax.configs import base

from bert_jax import config as configs
from bert_jax.data.dataset import Dataset
from bert_jax.data.order import Order

ROWS = 50


def dataset(sizes=None):
    rows = lambda phase, split, epoch: np.arange(ROWS)  # noqa: E731
    return Dataset(
        shapes=pytest.fail, splits=("train", "heldout"), rows=rows, make=pytest.fail, sizes=sizes
    )


def phases_of(*shapes):
    """Returns phases of (length, batch, steps)."""
    config = base.get_config(task="packed_documents")
    with config.unlocked():
        names = [f"p{number}" for number in range(len(shapes))]
        config.phases = base.ConfigDict(
            {
                name: base.phase(steps, length, batch)
                for name, (length, batch, steps) in zip(names, shapes, strict=True)
            }
        )
        config.phase_order = tuple(names)
    return configs.phases(config)


def rows_of(data, phase) -> list[tuple[int, int, int]]:
    """Returns (epoch, row, key) of each row of each batch of a phase, in order."""
    order = Order(data, phase, "train", 3, phase.batch)
    result = []
    steps = np.arange(phase.stop - phase.first)
    for epoch, first in zip(*order.locate(steps, order.start, phase.batch), strict=True):
        rows, keys = order.read(first + np.arange(phase.batch), int(epoch))
        result += [(int(epoch), *pair) for pair in zip(rows.tolist(), keys.tolist(), strict=True)]
    return result


@pytest.mark.parametrize(
    "shapes",
    [
        ((8, 7, 5), (8, 3, 30), (8, 7, 9)),
        ((8, 7, 5), (16, 4, 8), (8, 7, 20)),  # with other rows between
        ((8, 25, 2), (8, 25, 2)),  # the first ends with an epoch
        ((8, 7, 7), (8, 60, 2), (8, 7, 3)),  # a batch of more rows than there are
    ],
)
def test_a_phase_of_the_same_shape_goes_on(shapes):
    """No row of an epoch is taken twice, none is skipped but those that fill no batch, and the first phase is not
    changed by the others."""
    phases = phases_of(*shapes)
    seen = []
    for phase in phases:
        if phase.length == 8:
            seen += rows_of(dataset(), phase)
    epochs = [epoch for epoch, _, _ in seen]
    assert epochs == sorted(epochs) and set(epochs) == set(range(max(epochs) + 1))
    largest = max(batch for _, batch, _ in shapes)
    if largest <= ROWS:
        assert len({(epoch, row) for epoch, row, _ in seen}) == len(seen)
        for epoch in range(max(epochs)):
            assert epochs.count(epoch) > ROWS - largest
    assert rows_of(dataset(), phases_of(shapes[0])[0]) == rows_of(dataset(), phases[0])


def test_equal_phases_are_one():
    """Two phases of one batch have the batches of a phase that is as long as both."""
    whole = rows_of(dataset(), phases_of((8, 6, 40))[0])
    parts = [rows_of(dataset(), phase) for phase in phases_of((8, 6, 13), (8, 6, 27))]
    assert parts[0] + parts[1] == whole


def test_rows_of_another_shape_begin_anew():
    first, second = phases_of((8, 6, 13), (16, 6, 13))
    assert {epoch for epoch, _, _ in rows_of(dataset(), second)} == {0, 1}
    assert rows_of(dataset(), first)[:6] != rows_of(dataset(), second)[:6]


def test_rows_that_are_sorted_by_size_begin_an_epoch_with_another_batch():
    data = dataset(sizes=lambda rows: rows % 5)
    same, other = (phases_of((8, 5, 4), (8, batch, 4))[1] for batch in (5, 4))
    assert {epoch for epoch, _, _ in rows_of(data, same)} == {0}
    assert {epoch for epoch, _, _ in rows_of(data, other)} == {1}
