"""Packing: which pairs share a row, and that packing does not change the pairs."""

import numpy as np
import pytest
from kits import packed as kit
from kits import pairs
from kits.rows import assert_same

from bert_jax.errors import BadInput
from bert_jax.tasks.text import packing, pair_rows


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return kit.packed_store(tmp_path_factory.mktemp("packing") / "store")


# --- Which pairs share a row ----------------------------------------------------------------------


def best_fit(lengths, room, sequences):
    """Returns the number of rows of plain best-fit decreasing, one pair at a time."""
    rows = []
    for length in sorted(lengths, reverse=True):
        fitting = [row for row in rows if row[0] >= length and row[1] < sequences]
        row = min(fitting, default=None, key=lambda row: row[0])
        if row is None:
            rows.append(row := [room, 0])
        row[0], row[1] = row[0] - length, row[1] + 1
    return len(rows)


@pytest.mark.parametrize("sequences", [1, 2, 8])
def test_packing_needs_as_few_rows_as_best_fit(sequences):
    draw = np.random.default_rng(sequences)
    for room, number in ((512, 1200), (60, 1), (10, 40)):
        lengths = np.minimum(room, 5 + draw.geometric(2.5 / room, number))
        packed = packing.pack(lengths, room, sequences)
        assert packed.shape[1] == sequences
        np.testing.assert_array_equal(np.sort(packed[packed >= 0]), np.arange(number))
        assert np.where(packed < 0, 0, lengths[packed]).sum(1).max() <= room
        assert len(packed) <= 1 + 1.01 * best_fit(lengths.tolist(), room, sequences)


@pytest.mark.parametrize("window", [packing.WINDOW, 16])
def test_an_epoch_has_every_pair_once(store, monkeypatch, window):
    monkeypatch.setattr(packing, "WINDOW", window)
    sizes = set()
    spec = kit.SPEC._replace(seed=window)
    for number in range(6):
        rows = pairs.epoch_rows(store, spec, number)
        chosen = rows[np.arange(len(rows))]
        expected = pair_rows.unpack(pair_rows.indexes(store, "train", spec.rules).open(number))
        assert sorted(chosen[chosen[..., 1] > 0].tolist()) == sorted(expected.tolist())
        sizes.add(len(rows))
    assert len(sizes) > 1


# --- Batches --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "task, masking",
    [("nsp", "token"), ("nsp", "whole_word"), ("sop", "whole_word"), ("none", "token")],
)
def test_packed_pairs_are_the_pairs_of_an_unpacked_epoch(store, task, masking):
    """Compares tokens before masking, segments, positions from 0, labels and the number of predictions."""
    changes = {"pair_task": task, "masking": masking, "max_predictions": 20}
    packed, unpacked = kit.epoch(store, **changes), kit.epoch(store, max_packed=1, **changes)
    assert len(unpacked["rows"]) > 1.3 * len(packed["rows"])
    assert_same([kit.one_pair_per_row(unpacked)], [unpacked])
    alone = [kit.one_pair_per_row(batch) for batch in (packed, unpacked)]
    one, other = (kit.sorted_rows(kit.without_masks(each, masking)) for each in alone)
    assert_same([one], [other])
    absent = np.arange(4) >= packed["sequence_ids"].max(1)[:, None]
    assert absent.any() and not packed["cls_positions"][absent].any()
    assert not packed["pair_weights"][absent].any() and not packed["pair_labels"][absent].any()
    assert (packed["pair_weights"][~absent] == (task != "none")).all()
    padding = packed["sequence_ids"] == 0
    assert not packed["tokens"][padding].any() and not packed["positions"][padding].any()


def test_heldout_rows_are_never_packed(store):
    specs = kit.SPEC, kit.SPEC._replace(max_packed=1)
    packed, unpacked = (list(pairs.heldout(store, kit.WORD_STARTS, spec, 20)) for spec in specs)
    for batch in packed:
        for name in ("cls_positions", "pair_labels", "pair_weights"):
            assert not batch[name][:, 1:].any()
            batch[name] = batch[name][:, :1]
    assert_same(packed, unpacked)


def test_too_few_predictions_are_divided_among_pairs(store):
    plenty, few = kit.epoch(store, max_predictions=20), kit.epoch(store, max_predictions=3)
    fits = plenty["masked_weights"].sum(1) <= 3
    for name in ("tokens", "sequence_ids", "masked_positions", "masked_weights"):
        np.testing.assert_array_equal(few[name][fits][:, :3], plenty[name][fits][:, :3])
    cut = ~fits
    assert cut.sum() > 5 and (few["masked_weights"][cut].sum(1) == 3).all()
    # The last pair of a row is its shortest, and still gets a prediction.
    last = few["masked_positions"][cut].max(1)[:, None]
    owners = np.take_along_axis(few["sequence_ids"][cut], last, 1)[:, 0]
    assert (owners == few["sequence_ids"][cut].max(1)).all()


@pytest.mark.parametrize("wrong", ["row", "too many tokens"])
def test_damaged_rows_are_detected_when_they_are_used(store, wrong):
    """Opening a file of pairs or packed rows checks only its shape."""
    expected = kit.make(store, 0, 15, seed=77)
    rules, split = kit.SPEC._replace(seed=77).rules, store.splits["train"]
    indexes = pair_rows.indexes(store, "train", rules)
    unpacked, packed = indexes.path(0), packing.indexes(indexes, split, rules, 4).path(0)
    path, damaged = {
        "row": (unpacked, [len(split.tokens), 9, 9]),
        "too many tokens": (packed, [0, 1, 2, 3]),
    }[wrong]
    np.load(path, mmap_mode="r+")[3] = damaged
    with pytest.raises(BadInput, match=str(packed)):
        kit.make(store, 0, 15, seed=77)
    assert_same(kit.make(store, 0, 15, seed=77), expected)
