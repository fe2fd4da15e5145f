"""Before step 0: every warning has its number and remedy, and what cannot work stops the run."""

import shutil
from collections import namedtuple

import jax
import numpy as np
import pytest
from kits.small import small_config
from kits.stores import make_store, random_documents

from bert_jax import config
from bert_jax.data import rows, stream
from bert_jax.data import survey as surveys
from bert_jax.errors import BadInput
from bert_jax.parallel import mesh as meshes
from bert_jax.runs import preflight

SHAPES = {"params": jax.ShapeDtypeStruct((1000, 250), np.float32)}  # a megabyte
WORDS = np.ones(1000, bool)  # every piece begins a word
Usage = namedtuple("Usage", "total used free")


@pytest.fixture(scope="module")
def documents():
    return random_documents(600, sentences=30)


@pytest.fixture
def check(tmp_path):
    """check(train, heldout, key=value...) -> what is said about a store of these documents."""

    def lines(train, heldout, *changes, words=WORDS):
        store = make_store(tmp_path / "store", train, heldout)
        return preflight.preflight(small_config(*changes), store, words)

    return lines


def test_a_sound_start_has_no_warning(check, documents, tmp_path):
    (line,) = check(documents[:500], documents[500:])
    assert "none of 100 held-out documents among 500 training ones" in line
    assert preflight.check_place(small_config(), tmp_path, SHAPES) == []
    assert [path.name for path in tmp_path.iterdir()] == ["store"]


def test_numbers_are_those_of_all_rows(documents, tmp_path):
    store = make_store(tmp_path / "store", documents[:500], documents[500:])
    spec = stream.spec(small_config(), "main")
    numbers = surveys.survey_rows(store, spec)
    assert numbers.rows == rows.count(store.splits["train"], spec.rules, 0)
    steps = numbers.rows // spec.batch
    batches = list(stream.train_batches(store, WORDS, spec, 0, steps))
    real = np.concatenate([batch["sequence_ids"].sum(1) for batch in batches])
    labels = np.concatenate([batch["pair_labels"][:, 0] for batch in batches])
    masked = np.concatenate([batch["masked_weights"].sum(1) for batch in batches])
    assert numbers.fill == pytest.approx(real.mean() / 32, abs=0.005)
    assert numbers.pair_ratio == pytest.approx(labels.mean(), abs=0.005)
    assert numbers.given == pytest.approx(masked.mean(), abs=0.02)


def test_a_sample_is_spread():
    parts = surveys.spread(10_000, 640)
    assert len(parts) == surveys.PARTS and parts[0].start == 0 and parts[-1].stop == 10_000
    assert {part.stop - part.start for part in parts} == {10}
    assert surveys.spread(640, 640) == [slice(0, 640)]


def test_every_phase_is_looked_at(documents, tmp_path):
    store = make_store(tmp_path / "store", documents[:500], documents[500:])
    changes = "phases.long.predictions=1", "phases.long.length=40", "phases.short.length=32"
    changes += "phases.short.predictions=5", "dtype=float32"
    *warnings, summary = preflight.preflight(config.load("bert_base", changes), store, WORDS)
    assert any("phases.long.predictions=1 cuts off" in warning for warning in warnings)
    assert "rows short " in summary and "; long " in summary


def test_of_few_rows_nothing_is_said(check):
    few = [[[5, 6], [7, 8]], [[9, 10], [11, 12, 13]]]
    assert len(check(few, [[[5]], [[6]]], "phases.main.length=12")) == 1


def test_sentences_that_fill_a_row(check):
    long = random_documents(300, sentences=9, words=200)
    (warning, _) = check(long, random_documents(20, seed=1))
    assert "sentences are long for phases.main.length=32" in warning


def test_documents_of_one_sentence(check):
    single = [document[:1] for document in random_documents(400)]
    with pytest.raises(BadInput, match="all .* have the label 1.*objective.pairs=none"):
        check(single, [[[7, 8, 9]], [[9, 8]]])


def test_most_documents_of_one_sentence(check, documents):
    single = [document[:1] for document in random_documents(4000, seed=1)]
    (warning, _) = check(single + documents[:50], documents[500:], "phases.main.length=20")
    assert "of the pairs have label 1" in warning and "objective.pairs=none" in warning


def test_short_documents_fill_little(check):
    short = [[[5, 6, 7]], [[8, 9], [10, 11]]] * 50
    warnings = check(short, [[[12, 13]], [[14]]], "objective.pairs=none")
    assert "full, the rest is padding" in warnings[0] and "phases.main.length" in warnings[0]


@pytest.mark.parametrize("predictions, words", [(2, "cuts off"), (20, "none has more than 5")])
def test_predictions_fit_the_length(check, documents, predictions, words):
    (warning, _) = check(documents[:500], documents[500:], f"phases.main.predictions={predictions}")
    assert f"predictions={predictions}" in warning and words in warning


def test_words_that_are_sentences_cannot_be_masked_whole(check, documents):
    starts = np.arange(1000) < 105  # of the ids from 5 to 999, about a tenth
    split = documents[:500], documents[500:]
    (warning, _) = check(*split, "objective.masking=whole_word", words=starts)
    assert "10% of the tokens begin a word" in warning and "objective.masking=token" in warning


def test_heldout_documents_in_training_stop(check, documents):
    with pytest.raises(BadInput, match="3 of 103 held-out documents are in the training split"):
        check(documents[:500], documents[500:] + documents[:3])


def test_ids_beyond_the_vocabulary_stop(check, documents):
    with pytest.raises(BadInput, match="id 1000 is beyond the vocabulary of 1000"):
        check([*documents[:500], [[1000, 5], [6]]], documents[500:])


def test_disk_for_the_checkpoints_to_come(tmp_path, monkeypatch):
    """Two newest ones and one being written are three megabytes; every fifth step kept makes seven."""

    def check(free: float) -> list[str]:
        monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(0, 0, free))
        config = small_config("checkpoint.every=5", "checkpoint.keep_every=5")
        return preflight.check_place(config, tmp_path, SHAPES)

    assert check(7.1e6) == []
    (warning,) = check(6.9e6)
    assert "7 checkpoints of 1.0 MB are to come, 6.9 MB are free" in warning
    with pytest.raises(BadInput, match="config.checkpoint.keep=2: 3 checkpoints of 1.0 MB"):
        check(2.9e6)
    for step in ("5", "10"):  # a resumed run has some of them
        (tmp_path / "checkpoints" / step).mkdir(parents=True)
    assert len(check(2.9e6)) == 1 and check(5.1e6) == []


def test_a_workdir_that_cannot_be_written(tmp_path, monkeypatch):
    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(preflight.os, "fsync", full)
    with pytest.raises(BadInput, match="cannot be written .No space left"):
        preflight.check_writing(tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("batch", "most", "parts"), [(56, 4, "7 parts of 1"), (48, 4, "")])
def test_rows_that_hardly_divide(batch, most, parts):
    changes = f"phases.main.batch={batch}", f"train.rows_per_chip={most}"
    mesh = meshes.make_mesh(small_config().mesh)
    warnings = preflight.check_micro_batches(small_config(*changes), mesh)
    assert [parts in line for line in warnings] == [True] * bool(parts)
