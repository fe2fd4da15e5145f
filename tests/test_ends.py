"""Runs that end before their last step, by signals, a kill during a save or losses that are not finite, and how they
resume (random faults: tests/faults)."""

import json
import shutil
import signal

import pytest
from kits import faulty_program, processes
from kits.runs import assert_same_bits, lines, load, params, pretraining, signal_at

from bert_jax import loop, train
from bert_jax.checkpoints import reader
from bert_jax.convert import open_model
from bert_jax.runs import open_run, status
from bert_jax.runs.workdir import Workdir

pytestmark = pytest.mark.slow  # each trains
INTERRUPTED = pytest.param(signal.SIGINT, 130, marks=pytest.mark.full)


def reported(workdir) -> list[tuple]:
    return [(line["step"], line["split"]) for line in lines(workdir)]


@pytest.mark.parametrize("number, code", [(signal.SIGTERM, 75), INTERRUPTED])
def test_a_stopped_run_ends_with_the_same_bits(finished, tmp_path, monkeypatch, number, code):
    settings, undisturbed = finished
    signal_at(monkeypatch, 5, number)
    assert train.pretrain(load(settings), tmp_path / "run") == code
    stopped = status.status(tmp_path / "run")
    assert stopped["state"] == {75: "preempted", 130: "interrupted"}[code]
    assert 5 < stopped["step"] == stopped["last_checkpoint"] < 10
    assert train.pretrain(load(settings), tmp_path / "run") == 0
    assert_same_bits(params(tmp_path / "run"), params(undisturbed))
    assert len(set(reported(tmp_path / "run"))) == len(reported(tmp_path / "run"))
    assert lines(tmp_path / "run")[-1]["loss"] == lines(undisturbed)[-1]["loss"]


def test_an_interrupted_evaluation_is_repeated(finished, tmp_path):
    """As after a kill at step 10, between the save and the evaluation."""
    settings, undisturbed = finished
    run = tmp_path / "run"
    shutil.copytree(undisturbed, run)
    (run / "summary.json").unlink()
    shutil.rmtree(run / "checkpoints/20")
    text = "".join(json.dumps(line) + "\n" for line in lines(undisturbed)[:2])
    (run / "metrics.jsonl").write_text(text)
    assert train.pretrain(load(settings), run) == 0
    assert reported(run) == reported(undisturbed)
    assert [line["loss"] for line in lines(run)] == [line["loss"] for line in lines(undisturbed)]


@pytest.mark.parametrize(
    "changes, named",
    [
        ({"optimizer.learning_rate": 1e30, "optimizer.clip": 0}, "guard.stop_after"),
        ({"model.initializer": 1e30, "phases.main.steps": 5}, "0 to 4"),  # no step was applied
    ],
)
def test_a_loss_that_is_not_finite_ends_the_run(finished, tmp_path, changes, named):
    with pytest.raises(FloatingPointError, match=named):
        train.pretrain(load(finished[0], **changes), tmp_path / "run")
    assert status.status(tmp_path / "run")["state"] == "failed"
    assert not list(tmp_path.glob("run/checkpoints/[0-9]*"))


# The loss of step 10 is above that of step 5, whose checkpoint is kept.
EARLY = {"optimizer.learning_rate": 0.3, "evaluate.patience": 1, "evaluate.every": 5}
EARLY |= {"checkpoint.every": 5, "checkpoint.keep": 1}


@pytest.mark.full
def test_a_run_without_progress_ends_early(finished, tmp_path, capsys):
    """A killed one ends at the same step, with the same bits. Its model is that of the best step, unless the newest is
    asked for; a restart does nothing, unless it has more patience."""
    settings = finished[0]
    run = tmp_path / "run"
    killed = tmp_path / "killed"
    assert train.pretrain(load(settings, **EARLY), run) == 0
    fault = {faulty_program.FAULT: "0:step:8:kill"}
    (ended,) = processes.run(pretraining(settings, killed, **EARLY), tmp_path, 1, 8, **fault)
    assert ended.code == -signal.SIGKILL, ended
    assert train.pretrain(load(settings, **EARLY), killed) == 0
    for each in (run, killed):
        summary = json.loads((each / "summary.json").read_text())
        now = status.status(each)
        steps = now["step"], summary["steps"], summary["best"]["step"]
        assert now["state"] == "done" and steps == (10, 10, 5)
        assert summary["best"]["value"] < summary["heldout"]["loss"]
        assert reader.steps(each / "checkpoints") == [10, 5]
    for choice, step in (([], 5), (["evaluate.patience=0"], 10)):
        models = [open_run.open_run(Workdir(each), choice) for each in (run, killed)]
        assert [model.step for model in models] == [step, step]
        assert_same_bits(*(model.params for model in models))
    capsys.readouterr()
    assert train.pretrain(load(settings, **EARLY), run) == 0
    assert "already done" in capsys.readouterr().out
    patient = load(settings, **EARLY | {"evaluate.patience": 3})
    assert not train.is_summarized(patient, Workdir(run), 10)


def test_no_evaluation_follows_a_step_that_was_not_saved(finished, tmp_path, monkeypatch):
    """The step before the second one is not finite, so that it has no checkpoint."""
    batches = loop.Loop.batches

    def with_nan(self, phase, step):
        for number, rows in enumerate(batches(self, phase, step), step + 1):
            weights = rows["masked_weights"]
            yield rows | {"masked_weights": weights * float("nan")} if number == 10 else rows

    monkeypatch.setattr(loop.Loop, "batches", with_nan)
    keys = {
        "evaluate.patience": 9,
        "evaluate.every": 5,
        "checkpoint.every": 5,
        "checkpoint.keep": 9,
    }
    assert train.pretrain(load(finished[0], **keys), tmp_path / "run") == 0
    evaluated = [line["step"] for line in lines(tmp_path / "run") if line["split"] == "heldout"]
    assert evaluated == sorted(reader.steps(tmp_path / "run/checkpoints")) == [5, 15, 20]


def test_patience_begins_with_the_checkpoints_that_exist(finished, tmp_path):
    """The best evaluation was before, without patience, and its checkpoint is deleted."""
    settings, undisturbed = finished
    run = tmp_path / "run"
    shutil.copytree(undisturbed, run)
    (run / "summary.json").unlink()
    shutil.rmtree(run / "checkpoints/10")
    found = [line | {"loss": line["loss"] * (line["step"] > 10)} for line in lines(run)]
    (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in found))
    assert train.pretrain(load(settings, **{"evaluate.patience": 1}), run) == 0
    summary = json.loads((run / "summary.json").read_text())
    assert summary["best"]["step"] == 20 == open_model.open_model(run).step


def test_a_process_killed_inside_a_save_resumes_to_the_same_bits(finished, tmp_path):
    """During the save of step 15, the third one, when only some of its items are written."""
    settings, undisturbed = finished
    run = tmp_path / "run"
    changes = {"checkpoint.every": 5}
    command = pretraining(settings, run, **changes)
    fault = {faulty_program.FAULT: "0:commit:10:kill"}
    (ended,) = processes.run(command, tmp_path, 1, 8, **fault)
    assert ended.code == -signal.SIGKILL, ended
    assert list(run.glob("checkpoints/15.*tmp*")) and not (run / "checkpoints/15").exists()
    assert train.pretrain(load(settings, **changes), run) == 0
    assert_same_bits(params(run), params(undisturbed))
    assert reported(run) == reported(undisturbed)
    starts = json.loads((run / "run.json").read_text())["starts"]
    assert [start["step"] for start in starts] == [0, 10]
