"""A change to a store or saved batches during a run ends it: the file is named, and no checkpoint is saved after it."""

import os
import shutil
import time

import pytest
from kits import saved_batches
from kits.damage import flip_bit
from kits.malformed_inputs import refused
from kits.runs import pretraining

from bert_jax import loop
from bert_jax.checkpoints import reader
from bert_jax.data import manifest as manifests
from bert_jax.data import store as stores
from bert_jax.errors import BadInput
from bert_jax.runs import workdir

TOKENS = "train/tokens.npy"
half_a_run = saved_batches.half_a_run


@pytest.fixture
def store(tmp_path):
    """A directory with two files and their manifest."""
    place = tmp_path / "store"
    (place / "train").mkdir(parents=True)
    (place / TOKENS).write_bytes(bytes(5000))
    (place / "unigrams.npy").write_bytes(b"unigrams")
    manifests.write(place, {}, stores.FORMAT)
    time.sleep(0.02)  # longer than the resolution of file times
    return place


@pytest.mark.parametrize("change", [flip_bit, os.remove])
@pytest.mark.parametrize("name", [TOKENS, "manifest.json"])
def test_changes_are_named(store, name, change):
    check = manifests.watch(store, {"files": {TOKENS: {}, "unigrams.npy": {}}})
    check()
    change(store / name)
    with pytest.raises(BadInput, match=str(store / name)):
        check()


@pytest.mark.slow
def test_a_run_whose_store_changes_ends(finished, half_a_run, tmp_path, monkeypatch):
    """The store changes at step 12, between two reports."""
    place = shutil.copytree(finished[0]["store"], tmp_path / "data")
    name = "tokenizer/settings.json"
    advance = loop.Loop.batches

    def batches(self, phase, step):
        for number, rows in enumerate(advance(self, phase, step), step + 1):
            if number == 12:
                flip_bit(place / name)
            yield rows

    monkeypatch.setattr(loop.Loop, "batches", batches)
    line = refused(*pretraining(finished[0], half_a_run, store=place))
    assert str(place / name) in line
    assert reader.newest(half_a_run / "checkpoints") == 10
    assert workdir.read_json(half_a_run / "status.json")["state"] == "failed"
