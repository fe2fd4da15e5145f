"""What ends a run before its last step, signals, a kill inside a save, bad numbers, and how it goes on."""

import json
import os
import shutil
import signal

import numpy as np
import pytest
from kits import processes, stuck
from kits.runs import assert_same_bits, lines, load, params, signal_at
from kits.small import overrides

from bert_jax import cli, evaluate, train
from bert_jax.data import batch, feed
from bert_jax.runs import status

pytestmark = pytest.mark.slow  # each trains


def reported(workdir) -> list[tuple]:
    return [(line["step"], line["split"]) for line in lines(workdir)]


@pytest.mark.parametrize(
    "number, code",
    [(signal.SIGTERM, 75), pytest.param(signal.SIGINT, 130, marks=pytest.mark.full)],
)
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


@pytest.mark.full
def test_a_signal_during_an_evaluation_loses_nothing(finished, tmp_path, monkeypatch):
    """A signal comes in the evaluation of step 7, which the next start makes, and in the last one."""
    settings, undisturbed = finished
    whole_split, interrupt = evaluate.over, [True, False, False, True, False]

    def interrupted(*arguments):
        if interrupt.pop(0):
            os.kill(os.getpid(), signal.SIGTERM)
        return whole_split(*arguments)

    monkeypatch.setattr(evaluate, "over", interrupted)
    config = load(settings, **{"evaluate.every": 7})
    for step in (7, 20):
        assert train.pretrain(config, tmp_path / "run") == 75
        assert status.status(tmp_path / "run")["last_checkpoint"] == step
    assert train.pretrain(config, tmp_path / "run") == 0 and not interrupt
    assert_same_bits(params(tmp_path / "run"), params(undisturbed))
    evaluated = [step for step, split in reported(tmp_path / "run") if split == "heldout"]
    assert evaluated == [7, 14, 20]
    assert lines(tmp_path / "run")[-1]["loss"] == lines(undisturbed)[-1]["loss"]


@pytest.mark.parametrize("kept", [2, pytest.param(5, marks=pytest.mark.full)])
def test_an_evaluation_that_was_cut_off_is_made_up_for(finished, tmp_path, kept):
    """As after a kill between a save and the evaluation of that step, which is 10 or, the last one, 20."""
    settings, undisturbed = finished
    run = tmp_path / "run"
    shutil.copytree(undisturbed, run)
    (run / "summary.json").unlink()
    if kept == 2:
        shutil.rmtree(run / "checkpoints/20")
    text = "".join(json.dumps(line) + "\n" for line in lines(undisturbed)[:kept])
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


def spoil(monkeypatch, bad):
    """From now on the batches of these steps have a NaN among their weights; {step: SHA-256 before} of what is read."""
    made, digests = feed.StoreFeed.train, {}

    def train(self, phase, first, last, positions=None):
        for step, arrays in enumerate(made(self, phase, first, last, positions), first):
            digests[step] = batch.digest(arrays)
            if step in bad:
                weights = arrays["masked_weights"].copy()
                weights[3, 0] = np.nan
                arrays = arrays | {"masked_weights": weights}
            yield arrays

    monkeypatch.setattr(feed.StoreFeed, "train", train)
    return digests


@pytest.mark.full
def test_bad_batches_are_skipped_and_counted_and_named(finished, tmp_path, monkeypatch, capsys):
    run = tmp_path / "run"
    config = load(finished[0], **{"guard.stop_after": 5, "checkpoint.every": 5})
    with monkeypatch.context() as patch:
        digests = spoil(patch, {2, 9, 10, *range(15, 20)})
        signal_at(patch, 15, signal.SIGTERM)  # the next start goes on counting
        assert train.pretrain(config, run) == 75
        assert 15 < status.status(run)["last_checkpoint"] < 20
        command = f"inspect --config {run}/config.json --step 15"
        with pytest.raises(FloatingPointError, match=f"15 to 19.*guard.stop_after.*{command}"):
            train.pretrain(config, run)
    said = capsys.readouterr().out
    assert all(f"step {step}: " in said for step in (2, 9, 10)) and "step 8: " not in said
    train_lines = [line for line in lines(run) if line["split"] == "train"]
    assert [line["skipped"] for line in train_lines[:3]] == [0.2, 0.2, 0.2]
    assert [line["loss"] is None for line in train_lines] == [False, False, False, True]
    # Nothing is saved in a row of bad steps, before it is known what is wrong.
    assert not any((run / f"checkpoints/{step}").exists() for step in (10, 20))
    assert cli.main(command.split()) == 0
    assert digests[15] in capsys.readouterr().out


def test_a_process_killed_inside_a_save_resumes_to_the_same_bits(finished, tmp_path):
    """In that of step 15, the third, which has some of its items then."""
    settings, undisturbed = finished
    run, config = tmp_path / "run", load(settings, **{"checkpoint.every": 5})
    keys = [f"--config.{key}" for key in overrides(settings | {"checkpoint.every": 5})]
    command = ["pretrain", "--config", "demo", *keys, "--workdir", str(run)]
    fault = {stuck.FAULT: "0:commit:10:kill"}
    (ended,) = processes.run(command, tmp_path, 1, 8, program=stuck.__file__, **fault)
    assert ended.code == -signal.SIGKILL, ended
    assert list(run.glob("checkpoints/15.*tmp*")) and not (run / "checkpoints/15").exists()
    assert train.pretrain(config, run) == 0
    assert_same_bits(params(run), params(undisturbed))
    assert reported(run) == reported(undisturbed)
    starts = json.loads((run / "run.json").read_text())["starts"]
    assert [start["step"] for start in starts] == [0, 10]
