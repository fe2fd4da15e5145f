"""Packing: what goes together, and that packed pairs are the pairs they are alone."""

import json

import numpy as np
import pytest
from kits.packed import (
    ALONE,
    SPEC,
    WORD_STARTS,
    V,
    apart,
    assert_same,
    epoch,
    in_one_order,
    make,
    packed_store,
)
from kits.small import small_config
from kits.stores import make_store

from bert_jax.commands.inspect_batch import show
from bert_jax.data import batch as batches
from bert_jax.data import index, packing, stream, survey
from bert_jax.data.packing import NONE, Epochs
from bert_jax.errors import BadInput
from bert_jax.runs import preflight


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return packed_store(tmp_path_factory.mktemp("packing") / "store")


# --- What goes together ---------------------------------------------------------------------------


def best_fit(lengths, room, sequences):
    """The number of rows of plain best fit, longest first, one pair after the other."""
    rows = []
    for length in sorted(lengths, reverse=True):
        fitting = [row for row in rows if row[0] >= length and row[1] < sequences]
        row = min(fitting, default=None, key=lambda row: row[0])
        if row is None:
            rows.append(row := [room, 0])
        row[0], row[1] = row[0] - length, row[1] + 1
    return len(rows)


@pytest.mark.parametrize("sequences", [1, 2, 3, 8])
def test_pack_is_as_good_as_best_fit(sequences):
    draw = np.random.default_rng(sequences)
    for room, number in ((512, 1200), (128, 300), (60, 1), (10, 40)):
        lengths = np.minimum(room, 5 + draw.geometric(2.5 / room, number))
        packed = packing.pack(lengths, room, sequences)
        assert packed.shape[1] == sequences and packing.sound(packed.astype(np.uint32))
        np.testing.assert_array_equal(np.sort(packed[packed >= 0]), np.arange(number))
        assert np.where(packed < 0, 0, lengths[packed]).sum(1).max() <= room
        assert len(packed) <= 1 + 1.01 * best_fit(lengths.tolist(), room, sequences)


def test_articles_fill_rows():
    """Lengths about as on Wikipedia at 512: a tenth is full, the others are short."""
    draw = np.random.default_rng(0)
    lengths = np.where(draw.random(50_000) < 0.1, 512, 20 + draw.gamma(2, 75, 50_000))
    lengths = np.minimum(512, lengths.astype(int))
    packed = packing.pack(lengths, 512, 8)
    fill = lengths.sum() / len(packed) / 512
    assert fill > 0.97 > 0.5 > lengths.mean() / 512


def test_an_epoch_has_every_pair_once(store, monkeypatch):
    for window in (packing.WINDOW, 16):
        monkeypatch.setattr(packing, "WINDOW", window)
        rules = SPEC.rules._replace(seed=window)
        source, sizes = Epochs(store, "train", rules, 4), []
        for number in range(6):
            opened = source.open(number)
            chosen, numbers = source.choose(number, opened, np.arange(opened.rows))
            used = packing.lengths(chosen, rules) > 0
            np.testing.assert_array_equal(np.sort(numbers[used]), np.arange(len(opened.pairs)))
            rows = chosen[used]
            np.testing.assert_array_equal(
                rows[np.lexsort(rows.T)], opened.pairs[np.lexsort(np.array(opened.pairs).T)]
            )
            sizes.append(opened.rows)
        assert source.rows_per_epoch() == sizes[0] and len(set(sizes)) > 1


def test_what_goes_together_is_new_in_every_epoch(tmp_path):
    """Documents of one sentence without pairs: every epoch has the same ones."""
    documents = [[list(range(5 + n, 5 + n + 3 + n % 9))] for n in range(60)]
    store = make_store(tmp_path / "store", documents, vocabulary=V)
    rules = SPEC.rules._replace(pairs="none", short_rate=0.0)
    source, together, orders = Epochs(store, "train", rules, 3), [], []
    for number in range(3):
        opened = source.open(number)
        chosen, _ = source.choose(number, opened, np.arange(opened.rows))
        starts = [frozenset(row[row[:, 2] > 0, 0].tolist()) for row in chosen]
        together.append({row for row in starts if len(row) > 1})
        orders.append(packing.lengths(chosen, rules)[:, 0].tolist())
    assert len(together[0]) > 5 and len(together[0] & together[1]) < len(together[0]) / 4
    assert together[1] != together[2]
    # Made longest first; read in an order of the epoch.
    assert orders[0] != sorted(orders[0], reverse=True) and orders[0] != orders[1]


def test_a_short_epoch_begins_again_with_other_masks(store):
    source = Epochs(store, "train", SPEC.rules, 4)
    opened = source.open(0)
    numbers = np.arange(2 * opened.rows)
    chosen, pairs = source.choose(0, opened, numbers)
    np.testing.assert_array_equal(chosen[: opened.rows], chosen[opened.rows :])
    used = packing.lengths(chosen, SPEC.rules) > 0
    assert len(np.unique(pairs[used])) == 2 * len(opened.pairs)


# --- Batches --------------------------------------------------------------------------------------


@pytest.mark.parametrize("masking", ["token", "whole_word"])
@pytest.mark.parametrize("pairs", ["nsp", "sop", "none"])
def test_packed_pairs_are_the_pairs_of_an_unpacked_epoch(store, pairs, masking):
    """Tokens, segments, positions from 0, labels, and which tokens are masked by what."""
    changes = {"pairs": pairs, "masking": masking, "predictions": 20}
    packed, alone = epoch(store, **changes), epoch(store, sequences=1, **changes)
    assert len(alone["rows"]) > 1.3 * len(packed["rows"])
    assert_same([in_one_order(apart(packed))], [in_one_order(apart(alone))])
    assert_same([apart(alone)], [alone])
    first = {name: packed[name].shape[1] for name in ("pair_labels", "pair_weights")}
    assert set(first.values()) == {4}
    absent = np.arange(4) >= packed["sequence_ids"].max(1)[:, None]
    assert absent.any() and not packed["cls_positions"][absent].any()
    assert not packed["pair_weights"][absent].any() and not packed["pair_labels"][absent].any()
    assert (packed["pair_weights"][~absent] == (pairs != "none")).all()
    padding = packed["sequence_ids"] == 0
    assert not packed["tokens"][padding].any() and not packed["positions"][padding].any()


@pytest.mark.parametrize("masking", ["token", "whole_word"])
def test_any_step_on_any_hosts_is_the_same(store, masking):
    whole = make(store, 0, 40, masking=masking)  # over two epochs
    assert_same(make(store, 29, 40, masking=masking), whole[29:])
    for positions in (np.array([0, 3]), np.array([2, 1])):
        part = make(store, 5, 40, positions, masking=masking)
        assert_same(part, [{k: array[positions] for k, array in b.items()} for b in whole[5:]])


def test_heldout_rows_are_those_of_a_run_that_packs_nothing(store):
    packed, alone = (stream.Heldout(store, WORD_STARTS, spec, 20) for spec in (SPEC, ALONE))
    assert_same(list(packed), list(alone))


def test_too_few_predictions_are_shared_out(store):
    plenty, few = epoch(store, predictions=20), epoch(store, predictions=3)
    assert (few["masked_weights"].sum(1) <= 3).all()
    assert_same([few], [epoch(store, predictions=3)])
    for name in ("tokens", "sequence_ids", "masked_positions", "masked_weights"):
        fits = plenty["masked_weights"].sum(1) <= 3
        np.testing.assert_array_equal(few[name][fits][:, :3], plenty[name][fits][:, :3])
    cut = ~fits
    assert cut.sum() > 5 and (few["masked_weights"][cut].sum(1) == 3).all()
    # The last pair of a row is its shortest, and still has one.
    last = few["masked_positions"][cut].max(1)[:, None]
    owners = np.take_along_axis(few["sequence_ids"][cut], last, 1)[:, 0]
    assert (owners == few["sequence_ids"][cut].max(1)).all()


def test_synthetic_batches_are_packed_like_others():
    made = batches.synthetic(3, 20, 4, 50, sequences=3)
    expected = batches.shapes(3, 20, 4, 3)
    assert {n: (a.shape, a.dtype) for n, a in made.items()} == {
        n: (s.shape, s.dtype) for n, s in expected.items()
    }
    assert made["cls_positions"][0].tolist() == [0, 7, 14]
    assert made["sequence_ids"][0].tolist() == [1] * 7 + [2] * 7 + [3] * 6
    assert made["positions"][0].tolist() == [*range(7), *range(7), *range(6)]


# --- What is said about it, and what is refused ---------------------------------------------------


@pytest.mark.parametrize("sequences, most", [(0, 6), (7, 6), (-1, 6)])
def test_pairs_that_cannot_fit(store, sequences, most):
    with pytest.raises(
        BadInput, match=f"sequences {sequences}: .*32 tokens takes from 1 to {most}"
    ):
        stream.train_batches(store, WORD_STARTS, SPEC._replace(sequences=sequences), 0, 1)
    with pytest.raises(BadInput, match=f"phases.main.sequences={sequences}: .*from 1 to {most}"):
        small_config(f"phases.main.sequences={sequences}")


def test_a_damaged_file_is_built_again(store):
    expected = make(store, 0, 15)
    source = Epochs(store, "train", SPEC.rules, 4)
    path = source.packed.directory / f"{source.packed.name}-epoch0.npy"
    whole = path.read_bytes()
    for damaged in (b"", whole[:-8], whole[:140] + bytes([whole[140] ^ 1]) + whole[141:]):
        path.write_bytes(damaged)
        assert_same(make(store, 0, 15), expected)
        assert path.read_bytes() == whole
    known = path.with_name(f"{source.packed.name}-rows.json")
    rows = json.loads(known.read_text())["rows"]
    known.write_text("{")
    assert source.rows_per_epoch() == rows
    source.forget(1)
    assert not path.exists() and source.rows_per_epoch() == rows


@pytest.mark.parametrize("wrong", ["no such pair", "no pair", "too many tokens"])
def test_damage_that_opening_does_not_see_is_found_when_it_is_used(store, wrong, monkeypatch):
    monkeypatch.setattr(index, "PROBE", 1)
    monkeypatch.setattr(index, "SMALL", 0)
    expected = make(store, 0, 15, seed=77)
    rules = SPEC._replace(seed=77).rules
    path = next((store.path / "index").glob("train-*-seed77-*-packed4-epoch0.npy"))
    packed = np.load(path, mmap_mode="r+")
    pairs = np.array(Epochs(store, "train", rules, 4).pairs.open(0))
    full = np.flatnonzero(packing.lengths(pairs, rules) == 32)
    assert full.size > 1 and packed.shape[1] == 4
    row = 3
    packed[row] = {
        "no such pair": [len(pairs), NONE, NONE, NONE],
        "no pair": [NONE, 1, NONE, NONE],
        "too many tokens": [0, 1, 2, 3],
    }[wrong]
    packed.flush()
    with pytest.raises(BadInput, match=f"{path}: damaged; it is deleted now, start again"):
        make(store, 0, 15, seed=77)
    assert_same(make(store, 0, 15, seed=77), expected)


def test_a_survey_of_packed_rows(store):
    numbers, batch = survey.survey_rows(store, SPEC), epoch(store)
    assert numbers.rows == pytest.approx(len(batch["rows"]), abs=2)
    assert numbers.pairs == batch["pair_weights"].sum()
    assert numbers.fill == pytest.approx((batch["sequence_ids"] > 0).mean(), abs=0.02)
    assert numbers.given == pytest.approx(batch["masked_weights"].sum(1).mean(), abs=0.1)
    settings = small_config("phases.main.sequences=4", "phases.main.predictions=3")
    lines = preflight.preflight(settings, store, WORD_STARTS)
    assert "pairs a row" in lines[-1] and "6 would hold all" in " ".join(lines)


class Words:
    readable = staticmethod(str)


def test_inspect_shows_pairs_apart(store):
    batch = epoch(store)
    row = int(np.argmax(batch["sequence_ids"].max(1)))
    texts = show(batch, row, Words)
    assert len(texts) == batch["sequence_ids"][row].max() > 1
    for number, text in enumerate(texts):
        head, _, pieces = text.partition(": ")
        assert head == f"row {row}.{number + 1} label {batch['pair_labels'][row, number]}"
        places = np.flatnonzero(batch["sequence_ids"][row] == number + 1)
        assert len(pieces.split(" ")) == len(places)
        masked = np.isin(batch["masked_positions"][row][batch["masked_weights"][row] > 0], places)
        assert pieces.count("{") == masked.sum()
