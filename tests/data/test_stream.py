"""Batches: the contract, any step from anywhere, any split over hosts, phases, held-out rows, clean
ends."""

import itertools
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from kits.stores import SPECIAL, make_store, random_documents

from bert_jax.data import index, memory_map, stream
from bert_jax.data.packing import Epochs
from bert_jax.errors import BadInput

V = 1000
WORD_STARTS = np.arange(V) % 3 > 0
SPEC = stream.Spec(
    seed=11, phase=0, length=48, batch=8, predictions=7, pairs="nsp", masking="token",
    mask_rate=0.15, mask_share=0.8, random_share=0.1, short_rate=0.1,
)  # fmt: skip
KEYS = {
    "tokens", "segments", "positions", "sequence_ids", "masked_positions", "masked_targets",
    "masked_weights", "cls_positions", "pair_labels", "pair_weights", "rows",
}  # fmt: skip


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """About 120 rows, or 15 steps, an epoch."""
    path = tmp_path_factory.mktemp("stream") / "store"
    return make_store(path, random_documents(22), random_documents(9, seed=1))


def batches(store, first, last, positions=None, **changes):
    spec = SPEC._replace(**changes)
    return list(stream.train_batches(store, WORD_STARTS, spec, first, last, positions))


def assert_same(left, right):
    for one, other in zip(left, right, strict=True):
        assert one.keys() == other.keys()
        for name in one:
            np.testing.assert_array_equal(one[name], other[name], err_msg=name)


def unmasked(batch):
    """int32[B, L]: the tokens before masking."""
    tokens = batch["tokens"].copy()
    row, slot = np.nonzero(batch["masked_weights"])
    tokens[row, batch["masked_positions"][row, slot]] = batch["masked_targets"][row, slot]
    return tokens


def steps_per_epoch(store, **changes):
    spec = SPEC._replace(**changes)
    return stream.steps_per_epoch(Epochs(store, "train", spec.rules, spec.sequences), spec)


@pytest.mark.parametrize("masking", ["token", "whole_word"])
@pytest.mark.parametrize("pairs", ["nsp", "sop", "none"])
def test_the_batch_contract(store, pairs, masking):
    text = " ".join(map(str, store.splits["train"].tokens))
    for batch in batches(store, 0, 4, pairs=pairs, masking=masking):
        assert batch.keys() == KEYS
        for name, array in batch.items():
            assert array.dtype == (np.float32 if name.endswith("weights") else np.int32), name
        assert batch["tokens"].shape == (8, 48) and batch["masked_weights"].shape == (8, 7)
        assert batch["pair_labels"].shape == batch["cls_positions"].shape == (8, 1)
        assert (batch["pair_weights"] == (pairs != "none")).all() and not batch[
            "cls_positions"
        ].any()
        np.testing.assert_array_equal(batch["rows"], np.arange(8))
        for row, tokens in enumerate(unmasked(batch)):
            check_row(tokens, {name: array[row] for name, array in batch.items()}, pairs, text)


def check_row(tokens, row, pairs, text):
    length = row["sequence_ids"].sum()
    seps = np.flatnonzero(tokens == SPECIAL["sep"])
    assert tokens[0] == SPECIAL["cls"] and tokens[length - 1] == SPECIAL["sep"]
    assert len(seps) == (1 if pairs == "none" else 2) and (tokens[length:] == SPECIAL["pad"]).all()
    np.testing.assert_array_equal(row["sequence_ids"], np.arange(48) < length)
    np.testing.assert_array_equal(row["positions"][:length], np.arange(length))
    in_b = (np.arange(48) > seps[0]) & (np.arange(48) < length)
    np.testing.assert_array_equal(row["segments"], in_b)
    for sentence in np.split(tokens[1 : length - 1], [seps[0] - 1]):
        assert " ".join(str(token) for token in sentence if token != SPECIAL["sep"]) in text
    assert row["masked_weights"].sum() <= min(7, max(1, round(0.15 * int(length))))


def test_resuming_gives_the_same_batches(store):
    epoch = steps_per_epoch(store)
    assert 5 < epoch < 40
    whole = batches(store, 0, 3 * epoch)
    for first in (1, epoch - 1, epoch, 2 * epoch + 3):
        assert_same(batches(store, first, 3 * epoch), whole[first:])


def test_windows_and_groups_of_epochs_change_nothing(store, monkeypatch):
    whole = batches(store, 0, 70)
    for window, short in ((48, 1), (1 << 19, 1), (120, 1000)):
        monkeypatch.setattr(stream, "WINDOW", window)
        monkeypatch.setattr(stream, "SHORT", short)
        assert_same(batches(store, 0, 70), whole)
        assert_same(batches(store, 33, 70), whole[33:])


@pytest.mark.parametrize("masking", ["token", "whole_word"])
def test_hosts_together_are_the_whole_batch(store, masking):
    whole = batches(store, 9, 30, masking=masking)
    hosts = [np.array([0, 1, 6, 7]), np.array([5, 2, 3, 4])]
    parts = [batches(store, 9, 30, positions, masking=masking) for positions in hosts]
    for step, batch in enumerate(whole):
        for positions, part in zip(hosts, parts, strict=True):
            assert_same([part[step]], [{name: array[positions] for name, array in batch.items()}])


def test_epochs_and_phases_differ(store):
    epoch = steps_per_epoch(store)
    first, second = batches(store, 0, 1)[0], batches(store, epoch, epoch + 1)[0]
    other = batches(store, 0, 1, phase=1)[0]
    seed = batches(store, 0, 1, seed=12)[0]
    for batch in (second, other, seed):
        assert (unmasked(batch) != unmasked(first)).any(1).all()


def test_masks_are_new_in_every_epoch(tmp_path):
    """Two documents of one sentence without pairs: the rows of every epoch are the same, the masks
    are not."""
    documents = [[list(range(5, 45))], [list(range(50, 90))]]
    store = make_store(tmp_path / "store", documents)
    made = batches(store, 0, 30, pairs="none", batch=2, length=64, short_rate=0.0)
    rows = {tuple(map(tuple, np.sort(unmasked(batch), 0))) for batch in made}
    assert len(rows) == 1
    masks = {
        tuple(batch["masked_positions"][batch["tokens"][:, 1].argsort()].ravel()) for batch in made
    }
    assert len(masks) == 30


def test_an_epoch_has_every_row_once_and_wraps_when_short(store):
    spec = SPEC._replace(batch=1)
    source = Epochs(store, "train", spec.rules, 1)
    number = source.rows_per_epoch()
    counts = {epoch: source.open(epoch).rows for epoch in range(8)}
    assert min(counts.values()) < number < max(counts.values())
    for epoch, count in counts.items():
        rows = stream.window_inputs(
            source, {epoch: source.open(epoch)}, 1,
            np.arange(epoch * number, (epoch + 1) * number), number, np.arange(1), np.inf,
        )[0][:, 0, 0]  # fmt: skip
        first = min(number, count)
        assert len(np.unique(rows[:first], axis=0)) == first
        np.testing.assert_array_equal(rows[first:], rows[: number - first])


def test_a_batch_larger_than_an_epoch(tmp_path):
    store = make_store(tmp_path / "store", random_documents(2, sentences=3))
    made = batches(store, 0, 5, batch=100)
    assert len(made) == 5 and made[0]["tokens"].shape == (100, 48)
    assert_same(batches(store, 3, 5, batch=100), made[3:])


@pytest.mark.parametrize("batch", [7, 8, 1000])
def test_heldout_rows_are_given_once_each(store, batch):
    available = Epochs(store, "heldout", SPEC.rules, 1).rows_per_epoch()
    spec = SPEC._replace(batch=batch)
    for rows in (5, available, 10**9):
        made = list(stream.Heldout(store, WORD_STARTS, spec, rows))
        number = min(rows, available)
        assert number == min(rows, available) and len(made) == -(-number // batch)
        weights = np.concatenate([one["pair_weights"][:, 0] for one in made])
        assert weights.sum() == number and (weights[:number] == 1).all()
        masked = np.concatenate([one["masked_weights"] for one in made])
        assert (masked[:number].sum(1) >= 1).all() and not masked[number:].any()
        everything = np.concatenate([one["sequence_ids"].sum(1) for one in made])
        assert (everything >= 5).all()
        again = stream.Heldout(store, WORD_STARTS, spec, rows)
        assert_same(list(again), made)
        assert_same(list(again), made)
    kept = np.concatenate([unmasked(one) for one in made])[:number]
    words = set(store.splits["heldout"].tokens.tolist()) | {0, 2, 3}
    assert set(kept.ravel().tolist()) <= words


def test_heldout_over_two_hosts(store):
    whole = list(stream.Heldout(store, WORD_STARTS, SPEC, 21))
    for positions in (np.array([0, 1, 6, 7]), np.array([2, 3, 4, 5])):
        part = list(stream.Heldout(store, WORD_STARTS, SPEC, 21, positions))
        assert_same(
            part, [{name: array[positions] for name, array in one.items()} for one in whole]
        )


def test_spec_of_a_config():
    from configs import base

    config = base.get_config()
    config.phase_order = ("short", "long")
    with config.unlocked():
        config.phases.short = base.phase(steps=9, length=128, batch=256, predictions=20)
        config.phases.long = base.phase(steps=1, length=512, batch=64, predictions=76)
    config.corpus.weights = (2.0, 0.5)
    made = stream.spec(config, "long")
    assert made.weights == made.rules.weights == (2.0, 0.5)
    assert (made.phase, made.length, made.batch, made.predictions) == (1, 512, 64, 76)
    assert (made.seed, made.pairs, made.mask_rate) == (12345, "nsp", 0.15)


def test_bad_input_is_told_at_once(store):
    cases = [
        (dict(predictions=46), "predictions 46: a row of 48 tokens takes from 1 to 45"),
        (dict(predictions=0), "predictions 0"),
        (dict(length=3), "length 3"),
        (dict(masking="ngram"), "'ngram'"),
        (dict(mask_share=0.95), "more than 1 together"),
        (dict(mask_rate=-0.1), "mask_rate -0.1"),
    ]
    for changes, message in cases:
        with pytest.raises(BadInput, match=message):
            stream.train_batches(store, WORD_STARTS, SPEC._replace(**changes), 0, 1)
    with pytest.raises(BadInput, match="made for 1000 pieces, the tokenizer has 999"):
        stream.train_batches(store, WORD_STARTS[:-1], SPEC, 0, 1)
    with pytest.raises(BadInput, match="not rows of a batch of 8"):
        stream.train_batches(store, WORD_STARTS, SPEC, 0, 1, np.array([8]))


def test_a_damaged_row_of_an_index_is_found_when_it_is_used(store, monkeypatch):
    """One that opening a large file, of which some rows are looked at, does not see."""
    monkeypatch.setattr(index, "PROBE", 2)
    monkeypatch.setattr(index, "SMALL", 0)
    epoch = steps_per_epoch(store, seed=97)
    expected = batches(store, 0, epoch, seed=97)
    (path,) = (store.path / "index").glob("train-*-seed97-*-epoch0.npy")
    damaged = np.load(path, mmap_mode="r+")
    damaged[1, 0] = len(store.splits["train"].tokens)
    damaged.flush()
    with pytest.raises(BadInput, match=f"{path}: damaged; it is deleted now, start again"):
        batches(store, 0, epoch, seed=97)
    assert_same(batches(store, 0, epoch, seed=97), expected)


def test_what_is_given_back_changes_nothing(store, monkeypatch):
    """Mapped pages are dropped all the time, while batches are made from them."""
    whole = batches(store, 0, 100, weights=(1.5,))
    for name, value in (("LIMIT", 0), ("SLICE", 64)):
        monkeypatch.setattr(memory_map, name, value)
    monkeypatch.setattr(memory_map, "PERIOD", 0)
    assert_same(batches(store, 0, 100, weights=(1.5,)), whole)
    assert_same(batches(store, 70, 100, weights=(1.5,)), whole[70:])


def test_ids_beyond_the_vocabulary(tmp_path, monkeypatch):
    documents = random_documents(5) + [[[1000] * 50]]
    store = make_store(tmp_path / "store", documents)
    with pytest.raises(BadInput, match="id 1000 is beyond the vocabulary of 1000 pieces"):
        stream.train_batches(store, WORD_STARTS, SPEC, 0, 1)
    monkeypatch.setattr(stream, "PROBE", 1)  # beyond what is looked at when it is opened
    for masking in ("token", "whole_word"):
        with pytest.raises(BadInput, match="id 1000 is beyond"):
            batches(store, 0, 50, masking=masking)


def test_an_error_in_the_background_comes_out(store, monkeypatch):
    monkeypatch.setattr(stream, "SHORT", 1)
    epoch = steps_per_epoch(store, seed=99)
    real = index.Indexes.open

    def fail(self, number, cancelled=index.never):
        if number == 1:
            raise RuntimeError("the background broke")
        return real(self, number, cancelled)

    monkeypatch.setattr(index.Indexes, "open", fail)
    made = stream.train_batches(store, WORD_STARTS, SPEC._replace(seed=99), 0, 3 * epoch)
    assert len(list(itertools.islice(made, epoch))) == epoch
    with pytest.raises(RuntimeError, match="the background broke"):
        next(made)


def test_closing_cancels_the_background(store, monkeypatch):
    started, seen = threading.Event(), threading.Event()
    real = index.rows.build

    def slow(split, rules, epoch, cancelled):
        yield from real(split, rules, epoch, cancelled)
        if epoch:
            started.set()
            for _ in range(1000):
                time.sleep(0.01)
                if cancelled():
                    return seen.set()

    monkeypatch.setattr(stream, "SHORT", 1)
    monkeypatch.setattr(index.rows, "build", slow)
    made = stream.train_batches(store, WORD_STARTS, SPEC._replace(seed=98), 0, 10**6)
    next(made)
    assert started.wait(5)
    made.close()
    assert seen.is_set()
    files = [path.name for path in (store.path / "index").glob("*")]
    assert not any(name.endswith(".tmp") for name in files)
    assert not any("seed98" in name and "epoch1" in name for name in files)


@pytest.mark.skipif(sys.platform != "linux", reason="threads have no priority of their own")
def test_the_background_leaves_the_cores_to_training():
    def priority(cancelled=None):
        return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())

    before = priority()
    assert index.Ahead(priority).result() == 19 > before
    assert priority() == before


LEAVE = """
import sys; sys.path.insert(0, {here!r})
import numpy as np
from test_stream import SPEC, WORD_STARTS
from bert_jax.data import store, stream
opened = store.open_store({store!r})
made = stream.train_batches(opened, WORD_STARTS, SPEC, 0, 10**9)
for _ in range({number}): next(made)
{end}
"""


@pytest.mark.parametrize("end", ["", "raise SystemExit(0)"])
def test_the_interpreter_ends_in_the_middle_of_an_epoch(store, end):
    code = LEAVE.format(here=str(Path(__file__).parent), store=str(store.path), number=3, end=end)
    ended = subprocess.run([sys.executable, "-c", code], timeout=60, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    assert "Traceback" not in ended.stderr and "terminate" not in ended.stderr
