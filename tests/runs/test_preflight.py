"""Before step 0: every warning names its key, and what cannot work stops the run."""

import shutil
from collections import namedtuple

import jax
import numpy as np
import pytest
from kits.small import small_config
from kits.stores import make_store, random_documents

from bert_jax.data import batch_spec, sentence_pairs, stream
from bert_jax.data import store_sample as surveys
from bert_jax.errors import BadInput
from bert_jax.runs import preflight

SHAPES = {"params": jax.ShapeDtypeStruct((1000, 250), np.float32)}  # a megabyte
WORDS = np.ones(1000, bool)  # every piece begins a word
FEW_WORDS = np.arange(1000) < 105  # of the ids from 5 to 999, about a tenth
Usage = namedtuple("Usage", "total used free")
DOCUMENTS = random_documents(600, sentences=30)
TRAIN, HELDOUT = DOCUMENTS[:500], DOCUMENTS[500:]


@pytest.fixture
def check(tmp_path):
    """check(train, heldout, key=value...) -> what is said about a store of these documents."""

    def lines(train, heldout, *changes, words=WORDS):
        store = make_store(tmp_path / "store", train, heldout)
        return preflight.preflight(small_config(*changes), store, words)

    return lines


def test_a_sound_start_has_no_warning(check, tmp_path):
    assert len(check(TRAIN, HELDOUT)) == 1, "the summary alone"
    assert preflight.check_place(small_config(), tmp_path, SHAPES) == []
    assert [path.name for path in tmp_path.iterdir()] == ["store"]


def test_numbers_are_those_of_all_rows(tmp_path):
    store = make_store(tmp_path / "store", TRAIN, HELDOUT)
    spec = batch_spec.spec(small_config(), "main")
    numbers = surveys.survey_rows(store, spec)
    assert numbers.rows == sum(map(len, sentence_pairs.build(store.splits["train"], spec.rules, 0)))
    steps = numbers.rows // spec.batch
    batches = list(stream.train_batches(store, WORDS, spec, 0, steps))
    real = np.concatenate([batch["sequence_ids"].sum(1) for batch in batches])
    labels = np.concatenate([batch["pair_labels"][:, 0] for batch in batches])
    masked = np.concatenate([batch["masked_weights"].sum(1) for batch in batches])
    assert numbers.fill == pytest.approx(real.mean() / 32, abs=0.005)
    assert numbers.pair_ratio == pytest.approx(labels.mean(), abs=0.005)
    assert numbers.given == pytest.approx(masked.mean(), abs=0.02)


LONG = random_documents(300, sentences=9, words=200), random_documents(20, seed=1)
SINGLE = [document[:1] for document in random_documents(4000, seed=1)] + TRAIN[:50], HELDOUT
SHORT = [[[5, 6, 7]], [[8, 9], [10, 11]]] * 50, [[[12, 13]], [[14]]]
SPLIT = TRAIN, HELDOUT


@pytest.mark.parametrize(
    ("documents", "change", "words", "named"),
    [
        (LONG, "phases.main.length=32", WORDS, "phases.main.length=32"),
        (SINGLE, "phases.main.length=20", WORDS, "objective.pairs=none"),
        (SHORT, "objective.pairs=none", WORDS, "phases.main.length"),
        (SPLIT, "phases.main.predictions=2", WORDS, "phases.main.predictions=2"),
        (SPLIT, "phases.main.predictions=20", WORDS, "phases.main.predictions=20"),
        (SPLIT, "objective.masking=whole_word", FEW_WORDS, "objective.masking=token"),
    ],
)
def test_text_that_does_not_fit_the_config_is_a_warning(check, documents, change, words, named):
    warning, *_ = check(*documents, change, words=words)
    assert named in warning


def test_text_that_cannot_be_trained_on_stops_the_run(check):
    single = [document[:1] for document in TRAIN]
    with pytest.raises(BadInput, match="objective.pairs=none"):
        check(single, [[[7, 8, 9]], [[9, 8]]])


def test_disk_for_the_checkpoints_to_come(tmp_path, monkeypatch):
    """Two newest ones and one being written are three megabytes; every fifth step kept makes seven."""

    def check(free: float) -> list[str]:
        monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(0, 0, free))
        config = small_config("checkpoint.every=5", "checkpoint.keep_every=5")
        return preflight.check_place(config, tmp_path, SHAPES)

    assert check(7.1e6) == []
    [warning] = check(6.9e6)
    assert "7 checkpoints" in warning and "6.9 MB" in warning
    with pytest.raises(BadInput, match="config.checkpoint.keep=2"):
        check(2.9e6)
    for step in ("5", "10"):  # a resumed run has some of them
        (tmp_path / "checkpoints" / step).mkdir(parents=True)
    assert len(check(2.9e6)) == 1 and check(5.1e6) == []


def test_a_workdir_that_cannot_be_written_is_refused(tmp_path, monkeypatch):
    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(preflight.os, "fsync", full)
    with pytest.raises(BadInput, match="No space left"):
        preflight.check_writing(tmp_path)
    assert not list(tmp_path.iterdir())
