"""What ends a run before its last step, signals, kills, bad numbers, a workdir that goes, and how it goes on."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from kits import processes, running
from kits.running import assert_same_bits, lines, load, params, signal_after
from kits.small import overrides

from bert_jax import cli, evaluate, loop, train
from bert_jax.data import batch, feed
from bert_jax.errors import Unfinished
from bert_jax.runs import status
from bert_jax.runs.report import Reporter


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return running.train(tmp_path_factory.mktemp("world"))


@pytest.mark.parametrize("number, code", [(signal.SIGTERM, 75), (signal.SIGINT, 130)])
def test_a_stopped_run_ends_with_the_same_bits(world, tmp_path, number, code):
    settings, undisturbed = world
    thread = signal_after(tmp_path / "run", 5, number)
    assert train.pretrain(load(settings), tmp_path / "run") == code
    thread.join()
    stopped = status.status(tmp_path / "run")
    assert stopped["state"] == {75: "preempted", 130: "interrupted"}[code]
    assert 5 < stopped["step"] == stopped["last_checkpoint"] < 20
    assert train.pretrain(load(settings), tmp_path / "run") == 0
    assert_same_bits(params(tmp_path / "run"), params(undisturbed))
    reported = [(line["step"], line["split"]) for line in lines(tmp_path / "run")]
    assert len(set(reported)) == len(reported)
    last = [line["loss"] for run in (undisturbed, tmp_path / "run") for line in lines(run)[-1:]]
    assert last[0] == last[1]


def test_a_signal_during_an_evaluation_loses_nothing(world, tmp_path, monkeypatch):
    """At step 7, at the start that comes to it again, and in the last one: each line comes once, and is the same."""
    settings, _ = world
    config = load(settings, **{"evaluate.every": 7})
    assert train.pretrain(config, tmp_path / "undisturbed") == 0
    whole_split, interrupt = evaluate.over, [True, True, False, False, True, False]

    def interrupted(*arguments):
        if interrupt.pop(0):
            os.kill(os.getpid(), signal.SIGTERM)
        return whole_split(*arguments)

    monkeypatch.setattr(evaluate, "over", interrupted)
    for step in (7, 7, 20):
        assert train.pretrain(config, tmp_path / "run") == 75
        stopped = status.status(tmp_path / "run")
        assert stopped["state"] == "preempted"
        assert stopped["last_checkpoint"] == stopped["step"] == step
    assert train.pretrain(config, tmp_path / "run") == 0 and not interrupt
    runs = tmp_path / "undisturbed", tmp_path / "run"
    assert_same_bits(*map(params, runs))
    undisturbed, again = (
        [(row["step"], row["split"], row["loss"]) for row in lines(run)] for run in runs
    )
    assert again == undisturbed


def test_a_run_cut_off_before_its_last_evaluation_is_finished(world, tmp_path):
    settings, undisturbed = world
    shutil.copytree(undisturbed, tmp_path / "run")
    (tmp_path / "run/summary.json").unlink()
    kept = lines(undisturbed)[:-1]
    text = "".join(json.dumps(line) + "\n" for line in kept)
    (tmp_path / "run/metrics.jsonl").write_text(text)
    assert train.pretrain(load(settings), tmp_path / "run") == 0
    last = [lines(run)[-1] for run in (undisturbed, tmp_path / "run")]
    assert last[0]["loss"] == last[1]["loss"] and last[1]["step"] == 20


def test_an_evaluation_that_was_cut_off_is_made_up_for(world, tmp_path):
    """As after a kill between a save and the evaluation of the same step."""
    settings, undisturbed = world
    shutil.copytree(undisturbed, tmp_path / "run")
    (tmp_path / "run/summary.json").unlink()
    shutil.rmtree(tmp_path / "run/checkpoints/20")
    kept = [line for line in lines(undisturbed) if line["step"] < 10]
    kept += [line for line in lines(undisturbed) if (line["step"], line["split"]) == (10, "train")]
    text = "".join(json.dumps(line) + "\n" for line in kept)
    (tmp_path / "run/metrics.jsonl").write_text(text)
    assert train.pretrain(load(settings), tmp_path / "run") == 0
    for ours, theirs in zip(lines(tmp_path / "run"), lines(undisturbed), strict=True):
        assert (ours["step"], ours["split"]) == (theirs["step"], theirs["split"])
        assert ours["loss"] == theirs["loss"]


def test_a_loss_that_is_not_finite_ends_the_run(world, tmp_path):
    settings, _ = world
    broken = load(settings, **{"optimizer.learning_rate": 1e30, "optimizer.clip": 0})
    with pytest.raises(FloatingPointError, match="the loss is nan, 10 in a row"):
        train.pretrain(broken, tmp_path / "run")
    assert status.status(tmp_path / "run")["state"] == "failed"
    assert not list(tmp_path.glob("run/checkpoints/[0-9]*"))


def test_a_run_none_of_whose_steps_was_applied_is_not_done(world, tmp_path):
    settings, _ = world
    broken = load(settings, **{"model.initializer": 1e30, "phases.main.steps": 5})
    with pytest.raises(
        FloatingPointError, match=r"steps 0 to 4: .*, 5 in a row \(all steps of the run\)"
    ):
        train.pretrain(broken, tmp_path / "run")
    assert status.status(tmp_path / "run")["state"] == "failed"


def test_a_workdir_that_is_moved_ends_the_run_in_a_line(world, tmp_path, monkeypatch):
    """Which names the last checkpoint; where it is now, the run goes on."""
    settings, undisturbed = world
    run, report, config = tmp_path / "run", Reporter.report, load(settings, **{"log.every": 1})

    def moving(reporter, step, *rest):
        if step == 13 and run.exists():
            run.rename(tmp_path / "moved")
        report(reporter, step, *rest)

    monkeypatch.setattr(Reporter, "report", moving)
    with pytest.raises(Unfinished, match="the last checkpoint was step 10; .* has gone"):
        train.pretrain(config, run)
    assert not run.exists()
    assert train.pretrain(config, tmp_path / "moved") == 0
    assert_same_bits(params(tmp_path / "moved"), params(undisturbed))


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


def test_bad_batches_are_skipped_and_counted_and_named(world, tmp_path, monkeypatch, capsys):
    settings, _ = world
    with monkeypatch.context() as patched:
        digests = spoil(patched, {2, 9, 10, *range(15, 20)})
        # A stop in the midst of the row, which goes on counting.
        thread = signal_after(tmp_path / "run", 15, signal.SIGTERM)
        config = load(settings, **{"guard.stop_after": 5, "checkpoint.every": 5})
        assert train.pretrain(config, tmp_path / "run") == 75
        thread.join()
        assert 15 < status.status(tmp_path / "run")["last_checkpoint"] < 20
        with pytest.raises(FloatingPointError) as failure:
            train.pretrain(config, tmp_path / "run")
    said = capsys.readouterr().out
    assert "step 2: the loss is nan; skipped\n" in said
    assert "step 10: the loss is nan; skipped (2 in a row)\n" in said
    command = f"bert-jax inspect --config {tmp_path / 'run/config.json'} --step 15"
    reason = "steps 15 to 19: the loss is nan, 5 in a row (config.guard.stop_after); the first batch of them: "
    assert str(failure.value) == reason + command
    reported = [line for line in lines(tmp_path / "run") if line["split"] == "train"]
    skipped = {line["step"]: line["skipped"] for line in reported}
    assert skipped[5] == skipped[10] == 0.2
    assert [line["loss"] is None for line in reported] == [False, False, False, True]
    assert not (tmp_path / "run/checkpoints/20").exists()
    assert not (
        tmp_path / "run/checkpoints/10"
    ).exists()  # in a row: what is wrong is not known yet
    assert cli.main(command.split()[1:]) == 0
    assert f"sha256 {digests[15]}" in capsys.readouterr().out


def test_what_stops_unsaved_is_interrupted_and_not_failed(world, tmp_path, monkeypatch):
    settings, _ = world

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(loop.Loop, "report", interrupted)
    with pytest.raises(KeyboardInterrupt):
        train.pretrain(load(settings), tmp_path / "run")
    found = status.status(tmp_path / "run")
    assert (found["state"], found["error"]) == ("interrupted", "before it was saved")


@pytest.mark.slow
def test_a_killed_process_resumes_to_the_same_bits(world, tmp_path):
    settings, undisturbed = world
    keys = [f"--config.{override}" for override in overrides(settings)]
    command = [sys.executable, "-m", "bert_jax", "pretrain", "--config", "demo", *keys]
    command += ["--workdir", str(tmp_path / "run")]
    # A cache of its own: killed in the middle of writing, it would leave half a program to other tests.
    cache = {"JAX_COMPILATION_CACHE_DIR": str(tmp_path / "cache")}
    environment = processes.environment(devices=8, **cache)
    for step in (5, 15):
        process = subprocess.Popen(command, env=environment)
        while process.poll() is None and not reached(tmp_path / "run", step):
            time.sleep(0.01)
        process.kill()
        process.wait()
    assert subprocess.run(command, env=environment).returncode == 0
    assert_same_bits(params(tmp_path / "run"), params(undisturbed))
    steps = [(line["step"], line["split"]) for line in lines(tmp_path / "run")]
    assert steps == [(line["step"], line["split"]) for line in lines(undisturbed)]
    # It says so, and where its seconds went: but for opening files, every one since the first start is in one place.
    summary = json.loads((tmp_path / "run/summary.json").read_text())
    first, _, last = starts = json.loads((tmp_path / "run/run.json").read_text())["starts"]
    assert summary["starts"] == 3 and [start["step"] for start in starts] == [0, 0, 10]
    lost = summary["lost_seconds"]
    assert lost["restart"] > 2 and all(seconds > 0 for seconds in lost.values())
    whole = summary["heldout"]["time"] - first["time"] + first["compile_seconds"]
    told = summary["seconds"] + sum(lost.values()) - lost["input"]
    assert told == pytest.approx(whole, abs=2)


def reached(workdir, step):
    path = workdir / "metrics.jsonl"
    return path.exists() and f'"step": {step},' in path.read_text()
