"""Whole runs: what they leave, how they resume, stop and refuse."""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import jax
import numpy as np
import processes
import pytest
from small import SMALL, overrides, write_corpus

from bert_jax import batch, config, evaluate, feed, loop, main, pretrain, status, trained, workdir
from bert_jax.errors import BadInput


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """Settings of a prepared store and the workdir of an undisturbed run of 20 steps."""
    directory = tmp_path_factory.mktemp("world")
    write_corpus(directory / "corpus.txt", documents=60)
    settings = SMALL | {
        "corpus.source": str(directory / "corpus.txt"),
        "store": str(directory / "store"),
    }
    workdir = directory / "run"
    assert pretrain.pretrain(load(settings), workdir) == 0
    return settings, workdir


def load(settings, **changes):
    return config.load("demo", overrides(settings | changes))


def lines(workdir):
    return [json.loads(line) for line in (workdir / "metrics.jsonl").read_text().splitlines()]


def params(workdir):
    return trained.open_run(workdir).params


def assert_same_bits(a, b):
    jax.tree.map(np.testing.assert_array_equal, a, b)


def signal_after(workdir, step, number):
    """Sends this process a signal once the run has reported `step`."""

    def wait():
        while not (workdir / "metrics.jsonl").exists() or not any(
            line["step"] >= step for line in lines(workdir)
        ):
            time.sleep(0.002)
        os.kill(os.getpid(), number)

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    return thread


def test_a_run_leaves_its_files(world):
    settings, workdir = world
    names = {path.name for path in workdir.iterdir()}
    expected = {"config.json", "run.json", "status.json", "metrics.jsonl", "summary.json"}
    assert names == expected | {"tensorboard", "tokenizer", "checkpoints", ".lock"}
    saved = config.load(str(workdir / "config.json"))
    assert config.differences(saved, load(settings)) == {}
    steps = [(line["step"], line["split"]) for line in lines(workdir)]
    assert steps == [
        (5, "train"),
        (10, "train"),
        (10, "heldout"),
        (15, "train"),
        (20, "train"),
        (20, "heldout"),
    ]
    facts = json.loads((workdir / "run.json").read_text())
    summary = json.loads((workdir / "summary.json").read_text())
    assert facts["parameters"] == summary["parameters"] > facts["encoder_parameters"] > 0
    assert summary["steps"] == 20 and summary["heldout"]["step"] == 20
    assert {path.name for path in workdir.glob("checkpoints/*")} == {"10", "20"}
    assert list((workdir / "tensorboard").glob("events*"))
    assert status.status(workdir)["state"] == "done"


def test_a_line_has_what_is_promised(world):
    train, heldout = lines(world[1])[0], lines(world[1])[-1]
    promised = {"step", "split", "loss", "mlm_loss", "mlm_accuracy", "nsp_loss", "nsp_accuracy"}
    assert promised | {"mlm_loss_masked", "seconds"} <= set(heldout)
    promised |= {"learning_rate", "gradient_norm", "tokens_per_second", "rows_per_second"}
    assert promised | {"fill", "model_flops_utilization", "seconds"} <= set(train)
    assert train["model_flops_utilization"] is None  # of a processor whose peak is not known
    assert 0.5 < train["fill"] <= 1
    ratio = train["tokens_per_second"] / (train["rows_per_second"] * 32)
    assert ratio == pytest.approx(train["fill"], rel=1e-3)
    # The rate of the last step of the interval: warming up to 3e-3 in five steps.
    assert train["learning_rate"] == pytest.approx(3e-3 * 4 / 5)


@pytest.mark.parametrize("again", [False, True])
def test_a_damaged_checkpoint_is_passed_over(world, tmp_path, capsys, again):
    """The newest one, of a run that is done or that goes on: named, kept under another name, and made again."""
    settings, undisturbed = world
    shutil.copytree(undisturbed, tmp_path / "run")
    place = tmp_path / "run/checkpoints"
    if again:
        (tmp_path / "run/summary.json").unlink()
    for path in (place / "20/params").rglob("d/*"):
        data = bytearray(path.read_bytes())
        data[len(data) // 3] ^= 1
        path.write_bytes(data)
    assert pretrain.pretrain(load(settings), tmp_path / "run") == 0
    told = capsys.readouterr().out
    assert f"{place}/20: " in told and "resumed from step 10" in told
    names = sorted(path.name.partition("-")[0] for path in place.iterdir())
    assert names == ["10", "20", "20.broken"]
    assert_same_bits(params(tmp_path / "run"), params(undisturbed))
    steps = [(line["step"], line["split"]) for line in lines(tmp_path / "run")]
    assert steps == [(line["step"], line["split"]) for line in lines(undisturbed)]


def test_no_checkpoint_that_verifies(world, tmp_path):
    settings, undisturbed = world
    shutil.copytree(undisturbed, tmp_path / "run")
    for step in (10, 20):
        shutil.rmtree(tmp_path / f"run/checkpoints/{step}/fingerprints")
    before = sorted(str(path) for path in (tmp_path / "run").rglob("*"))
    with pytest.raises(BadInput, match="20: its fingerprints are missing; .*10: its fingerprints"):
        pretrain.pretrain(load(settings), tmp_path / "run")
    assert sorted(str(path) for path in (tmp_path / "run").rglob("*")) == before


def test_it_learns(world):
    losses = [line["mlm_loss"] for line in lines(world[1]) if line["split"] == "train"]
    assert losses[-1] < losses[0] - 0.5


@pytest.mark.parametrize("number, code", [(signal.SIGTERM, 75), (signal.SIGINT, 130)])
def test_a_stopped_run_ends_with_the_same_bits(world, tmp_path, number, code):
    settings, undisturbed = world
    thread = signal_after(tmp_path / "run", 5, number)
    assert pretrain.pretrain(load(settings), tmp_path / "run") == code
    thread.join()
    stopped = status.status(tmp_path / "run")
    assert stopped["state"] == {75: "preempted", 130: "interrupted"}[code]
    assert 5 < stopped["step"] == stopped["last_checkpoint"] < 20
    assert pretrain.pretrain(load(settings), tmp_path / "run") == 0
    assert_same_bits(params(tmp_path / "run"), params(undisturbed))
    reported = [(line["step"], line["split"]) for line in lines(tmp_path / "run")]
    assert len(set(reported)) == len(reported)
    last = [line["loss"] for run in (undisturbed, tmp_path / "run") for line in lines(run)[-1:]]
    assert last[0] == last[1]


def test_a_signal_during_an_evaluation_loses_nothing(world, tmp_path, monkeypatch):
    """At step 7, at the start that comes to it again, and in the last one: each line comes once, and is the same."""
    settings, _ = world
    config = load(settings, **{"evaluate.every": 7})
    assert pretrain.pretrain(config, tmp_path / "undisturbed") == 0
    whole_split, interrupt = evaluate.over, [True, True, False, False, True, False]

    def interrupted(*arguments):
        if interrupt.pop(0):
            os.kill(os.getpid(), signal.SIGTERM)
        return whole_split(*arguments)

    monkeypatch.setattr(evaluate, "over", interrupted)
    for step in (7, 7, 20):
        assert pretrain.pretrain(config, tmp_path / "run") == 75
        stopped = status.status(tmp_path / "run")
        assert stopped["state"] == "preempted"
        assert stopped["last_checkpoint"] == stopped["step"] == step
    assert pretrain.pretrain(config, tmp_path / "run") == 0 and not interrupt
    runs = tmp_path / "undisturbed", tmp_path / "run"
    assert_same_bits(*map(params, runs))
    undisturbed, again = (
        [(row["step"], row["split"], row["loss"]) for row in lines(run)] for run in runs
    )
    assert again == undisturbed


def test_two_processes_do_not_share_a_workdir(world, tmp_path):
    settings, _ = world
    with workdir.locked(tmp_path / "run"):
        with pytest.raises(BadInput, match="another process is training in it"):
            pretrain.pretrain(load(settings), tmp_path / "run")
    assert [path.name for path in (tmp_path / "run").iterdir()] == [".lock"]


def test_stray_directories_are_not_checkpoints(world, tmp_path):
    settings, undisturbed = world
    shutil.copytree(undisturbed, tmp_path / "run")
    for name in ("22", "30", "notes"):  # the first in the way of the next save
        (tmp_path / "run/checkpoints" / name).mkdir()
    assert evaluate.evaluate(tmp_path / "run")["step"] == 20
    assert pretrain.pretrain(load(settings, **{"phases.main.steps": 22}), tmp_path / "run") == 0
    assert status.status(tmp_path / "run")["last_checkpoint"] == 22


def test_old_checkpoints_are_kept_by_the_config(world, tmp_path):
    settings, _ = world
    keys = {"checkpoint.every": 5, "checkpoint.keep": 1, "checkpoint.keep_every": 10}
    assert pretrain.pretrain(load(settings, **keys), tmp_path / "run") == 0
    kept = {path.name for path in tmp_path.glob("run/checkpoints/*")}
    assert kept == {"10", "20"}


def test_a_run_cut_off_before_its_last_evaluation_is_finished(world, tmp_path):
    settings, undisturbed = world
    shutil.copytree(undisturbed, tmp_path / "run")
    (tmp_path / "run/summary.json").unlink()
    kept = lines(undisturbed)[:-1]
    text = "".join(json.dumps(line) + "\n" for line in kept)
    (tmp_path / "run/metrics.jsonl").write_text(text)
    assert pretrain.pretrain(load(settings), tmp_path / "run") == 0
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
    assert pretrain.pretrain(load(settings), tmp_path / "run") == 0
    for ours, theirs in zip(lines(tmp_path / "run"), lines(undisturbed), strict=True):
        assert (ours["step"], ours["split"]) == (theirs["step"], theirs["split"])
        assert ours["loss"] == theirs["loss"]


def test_a_finished_run_is_done_at_once(world, capsys):
    settings, workdir = world
    before = {path: path.stat().st_mtime_ns for path in workdir.rglob("*")}
    assert pretrain.pretrain(load(settings), workdir) == 0
    assert "done already" in capsys.readouterr().out
    assert before == {path: path.stat().st_mtime_ns for path in workdir.rglob("*")}


@pytest.mark.slow
def test_two_phases_and_more_steps_later(world, tmp_path):
    settings, _ = world
    mine = tmp_path / "two.py"
    mine.write_text(
        "from bert_jax.configs import base, demo\n"
        "def get_config():\n"
        "    config = demo.get_config()\n"
        "    config.phase_order = ('short', 'long')\n"
        "    config.phases = base.ConfigDict(dict(\n"
        "        short=base.phase(steps=6, length=16, batch=16, predictions=3),\n"
        "        long=base.phase(steps=4, length=32, batch=8, predictions=5)))\n"
        "    return config\n"
    )
    keys = {key: value for key, value in settings.items() if not key.startswith("phases")}
    keys |= {"log.every": 4, "checkpoint.every": 8}

    def run(**changes):
        settings = config.load(str(mine), overrides(keys | changes))
        return pretrain.pretrain(settings, tmp_path / "run")

    assert run() == 0
    # A report never mixes phases: one ends with step 6.
    assert [line["step"] for line in lines(tmp_path / "run") if line["split"] == "train"] == [
        4,
        6,
        8,
        10,
    ]
    assert run(**{"phases.long.steps": 8}) == 0
    assert json.loads((tmp_path / "run/summary.json").read_text())["steps"] == 14
    with pytest.raises(BadInput, match="phases.short.steps: 6 in the run, 5 now"):
        run(**{"phases.short.steps": 5})


def test_another_config_is_refused(world):
    settings, workdir = world
    before = (workdir / "config.json").read_bytes()
    with pytest.raises(BadInput, match="config.seed: 12345 in the run, 1 now"):
        pretrain.pretrain(load(settings, seed=1), workdir)
    assert (workdir / "config.json").read_bytes() == before


def test_another_store_is_refused(world, tmp_path):
    settings, workdir = world
    write_corpus(tmp_path / "corpus.txt", documents=50, seed=1)
    other = {"corpus.source": str(tmp_path / "corpus.txt")}
    with pytest.raises(BadInput, match="corpus.source"):
        pretrain.pretrain(load(settings, **other), tmp_path / "run")
    with pytest.raises(BadInput, match="corpus.source"):
        pretrain.pretrain(load(settings, **other, store=tmp_path / "store"), workdir)
    assert not (tmp_path / "run").exists() and not (tmp_path / "store").exists()


def test_a_loss_that_is_not_finite_ends_the_run(world, tmp_path):
    settings, _ = world
    broken = load(settings, **{"optimizer.learning_rate": 1e30, "optimizer.clip": 0})
    with pytest.raises(FloatingPointError, match="the loss is nan, 10 in a row"):
        pretrain.pretrain(broken, tmp_path / "run")
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


def test_bad_batches_are_skipped_and_counted_and_named(world, tmp_path, monkeypatch, capsys):
    settings, _ = world
    with monkeypatch.context() as patched:
        digests = spoil(patched, {2, 9, 10, *range(15, 20)})
        # A stop in the midst of the row, which goes on counting.
        thread = signal_after(tmp_path / "run", 15, signal.SIGTERM)
        config = load(settings, **{"guard.stop_after": 5, "checkpoint.every": 5})
        assert pretrain.pretrain(config, tmp_path / "run") == 75
        thread.join()
        assert 15 < status.status(tmp_path / "run")["last_checkpoint"] < 20
        with pytest.raises(FloatingPointError) as failure:
            pretrain.pretrain(config, tmp_path / "run")
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
    assert main.main(command.split()[1:]) == 0
    assert f"sha256 {digests[15]}" in capsys.readouterr().out


def test_evaluate_gives_the_runs_last_numbers(world):
    values = evaluate.evaluate(world[1])
    last = lines(world[1])[-1]
    for name in ("loss", "mlm_loss", "mlm_loss_masked", "nsp_accuracy"):
        assert values[name] == pytest.approx(last[name], rel=1e-5)


def test_evaluate_takes_the_devices_that_are_here(world, tmp_path):
    """Of a run on sixteen; a mesh that is asked for has to fit."""
    shutil.copytree(world[1], tmp_path / "run")
    saved = json.loads((tmp_path / "run/config.json").read_text())
    saved["mesh"]["fsdp"] = 16
    (tmp_path / "run/config.json").write_text(json.dumps(saved))
    assert evaluate.evaluate(tmp_path / "run") == pytest.approx(
        evaluate.evaluate(world[1]), rel=1e-5
    )
    with pytest.raises(BadInput, match="config.mesh: data=-1 fsdp=16 tensor=1 does not fit 8"):
        evaluate.evaluate(tmp_path / "run", ["mesh.fsdp=16"])


def test_what_stops_unsaved_is_interrupted_and_not_failed(world, tmp_path, monkeypatch):
    settings, _ = world

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(loop.Loop, "report", interrupted)
    with pytest.raises(KeyboardInterrupt):
        pretrain.pretrain(load(settings), tmp_path / "run")
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
        process = subprocess.Popen(command, env=environment, cwd=Path(__file__).parent)
        while process.poll() is None and not reached(tmp_path / "run", step):
            time.sleep(0.01)
        process.kill()
        process.wait()
    assert subprocess.run(command, env=environment, cwd=Path(__file__).parent).returncode == 0
    assert_same_bits(params(tmp_path / "run"), params(undisturbed))
    steps = [(line["step"], line["split"]) for line in lines(tmp_path / "run")]
    assert steps == [(line["step"], line["split"]) for line in lines(undisturbed)]


def reached(workdir, step):
    path = workdir / "metrics.jsonl"
    return path.exists() and f'"step": {step},' in path.read_text()
