"""Whole runs: the files they write, how they resume, and the input they refuse."""

import json
import os
import shutil

import pytest
from kits import saved_batches
from kits.damage import flip_bit
from kits.runs import assert_same_bits, lines, load, params
from kits.small import write_corpus

from bert_jax import config, train
from bert_jax.errors import BadInput, Unavailable
from bert_jax.evaluate import evaluate_run
from bert_jax.runs import preflight, status
from bert_jax.runs.workdir import Workdir

half_a_run = saved_batches.half_a_run


@pytest.mark.parametrize(
    "keys, number",
    [
        ({"every": 10, "keep": 5}, 2),
        ({"every": 5, "keep": 1}, 1),
        ({"every": 5, "keep": 1, "keep_every": 10}, 2),
        ({"every": 5, "keep": 2, "keep_every": 10**6}, 2),
        ({"every": 15, "keep": 5}, 2),
    ],
)
def test_fewer_checkpoints_than_their_average_needs_are_refused(finished, tmp_path, keys, number):
    """At the start: of steps 0 to 20, the last is saved, too."""
    keys = {f"checkpoint.{key}": value for key, value in keys.items()}
    config = load(finished[0], **keys, **{"checkpoint.average": number + 1})
    with pytest.raises(BadInput, match=rf"checkpoint\.average={number + 1}.* {number} of 20"):
        train.pretrain(config, tmp_path / "run")
    assert not (tmp_path / "run").exists()
    preflight.check_average(load(finished[0], **keys, **{"checkpoint.average": number}))


def test_a_run_leaves_its_files(finished):
    settings, workdir = finished
    names = {path.name for path in workdir.iterdir()}
    expected = {"config.json", "run.json", "status.json", "metrics.jsonl", "summary.json"}
    expected |= {"samples.jsonl", "report.html"}
    assert names == expected | {"tensorboard", "tokenizer", "checkpoints", ".lock"}
    saved = config.load(str(workdir / "config.json"))
    assert config.differences(saved, load(settings, **{"log.report": True})) == {}
    steps = {"train": [], "heldout": []}
    for line in lines(workdir):
        steps[line["split"]].append(line["step"])
    assert steps == {"train": [5, 10, 15, 20], "heldout": [10, 20]}
    paths = workdir / "run.json", workdir / "summary.json"
    info, summary = (json.loads(path.read_text()) for path in paths)
    assert info["parameters"] == summary["parameters"] > info["body_parameters"] > 0
    assert (info["dtype"], info["feed_forward"]) == ("float32", 4 * 32)
    assert summary["steps"] == 20 and summary["heldout"]["step"] == 20
    masked = f"mlm_loss_masked {summary['heldout']['mlm_loss_masked']:.2f}, "
    assert summary["heldout"]["headline"].startswith(masked)
    assert {path.name for path in workdir.glob("checkpoints/*")} == {"10", "20"}
    assert list((workdir / "tensorboard").glob("events*"))
    assert status.status(workdir)["state"] == "done"


def test_a_line_has_the_documented_keys(finished):
    train = lines(finished[1])[0]
    heldout = lines(finished[1])[-1]
    keys = {"step", "split", "loss", "mlm_loss", "mlm_accuracy", "nsp_loss", "nsp_accuracy"}
    assert keys | {"mlm_loss_masked", "seconds"} <= set(heldout)
    keys |= {"learning_rate", "gradient_norm", "tokens_per_second", "rows_per_second"}
    assert keys | {"real_token_share", "model_flops_utilization", "seconds"} <= set(train)
    assert train["model_flops_utilization"] is None  # the peak FLOPs of CPUs are unknown
    ratio = train["tokens_per_second"] / (train["rows_per_second"] * 32)
    assert ratio == pytest.approx(train["real_token_share"], rel=1e-3) and 0.5 < ratio <= 1
    # The rate of the last step of the interval: warming up to 3e-3 in five steps.
    assert train["learning_rate"] == pytest.approx(3e-3 * 4 / 5)


def test_the_training_loss_falls(finished):
    losses = [line["mlm_loss"] for line in lines(finished[1]) if line["split"] == "train"]
    assert losses[-1] < losses[0] - 0.5


@pytest.mark.slow
def test_a_damaged_checkpoint_is_skipped(finished, tmp_path, capsys):
    """It is logged and renamed, and the run trains from the one before to write it again."""
    settings, undisturbed = finished
    run = tmp_path / "run"
    checkpoints = tmp_path / "run/checkpoints"
    shutil.copytree(undisturbed, run)
    for path in (checkpoints / "20/params").rglob("d/*"):
        flip_bit(path, path.stat().st_size // 3)
    assert train.pretrain(load(settings), run) == 0
    output = capsys.readouterr().out
    assert f"{checkpoints}/20" in output and "step 10" in output
    names = sorted(path.name.partition("-")[0] for path in checkpoints.iterdir())
    assert names == ["10", "20", "20.broken"]
    assert_same_bits(params(run), params(undisturbed))
    assert [line["loss"] for line in lines(run)] == [line["loss"] for line in lines(undisturbed)]


def test_a_run_without_an_intact_checkpoint_is_refused_and_unchanged(finished, tmp_path):
    settings, undisturbed = finished
    shutil.copytree(undisturbed, tmp_path / "run")
    for step in (10, 20):
        shutil.rmtree(tmp_path / f"run/checkpoints/{step}/fingerprints")
    before = sorted(str(path) for path in (tmp_path / "run").rglob("*"))
    with pytest.raises(BadInput, match="checkpoints.*20.*10"):
        train.pretrain(load(settings), tmp_path / "run")
    assert sorted(str(path) for path in (tmp_path / "run").rglob("*")) == before


def test_phases_are_named_before_they_are_compiled(finished, tmp_path, monkeypatch, capsys):
    """A large model compiles for minutes."""

    def refuse(*_):
        raise BadInput("too large")

    monkeypatch.setattr(train, "build", refuse)
    with pytest.raises(BadInput, match="too large"):
        train.pretrain(load(finished[0]), tmp_path / "run")
    assert "compiling phase main" in capsys.readouterr().out


@pytest.mark.slow
def test_two_processes_do_not_share_a_workdir(finished, tmp_path):
    with Workdir(tmp_path / "run").locked(), pytest.raises(Unavailable, match=f"{os.getpid()} of"):
        train.pretrain(load(finished[0]), tmp_path / "run")
    assert [path.name for path in (tmp_path / "run").iterdir()] == [".lock"]


@pytest.mark.full
def test_the_config_decides_which_old_checkpoints_are_kept(finished, tmp_path):
    keys = {"checkpoint.every": 5, "checkpoint.keep": 1, "checkpoint.keep_every": 10}
    assert train.pretrain(load(finished[0], **keys), tmp_path / "run") == 0
    assert {path.name for path in tmp_path.glob("run/checkpoints/*")} == {"10", "20"}


def test_a_finished_run_is_done_at_once(finished):
    settings, workdir = finished
    before = {path: path.stat().st_mtime_ns for path in workdir.rglob("*")}
    assert train.pretrain(load(settings), workdir) == 0
    assert before == {path: path.stat().st_mtime_ns for path in workdir.rglob("*")}


def test_another_config_or_text_is_refused(finished, tmp_path):
    settings, workdir = finished
    before = (workdir / "config.json").read_bytes()
    with pytest.raises(BadInput, match=f"config.seed.*config.init_from={workdir}"):
        train.pretrain(load(settings, seed=1), workdir)
    write_corpus(tmp_path / "corpus.txt", documents=50, seed=1)
    other = {"corpus.source": str(tmp_path / "corpus.txt")}
    with pytest.raises(BadInput, match="corpus.source"):
        train.pretrain(load(settings, **other), tmp_path / "run")
    # Its store is made, and has another content.
    with pytest.raises(BadInput, match="config.store"):
        train.pretrain(load(settings, **other, store=tmp_path / "store"), workdir)
    assert {path.name for path in tmp_path.iterdir()} == {"corpus.txt", "store"}
    assert (workdir / "config.json").read_bytes() == before


@pytest.mark.slow
def test_a_run_is_resumed_with_another_copy_of_its_text(half_a_run, finished, tmp_path):
    source = shutil.copy(finished[0]["corpus.source"], tmp_path / "copy.txt")
    assert train.pretrain(load(finished[0], **{"corpus.source": source}), half_a_run) == 0
    assert_same_bits(params(half_a_run), params(finished[1]))


def test_evaluate_repeats_the_last_evaluation_of_a_run_on_any_devices(finished, tmp_path):
    """The copy's config has a mesh of sixteen devices, which is ignored; an override must fit the devices."""
    shutil.copytree(finished[1], tmp_path / "run")
    saved = json.loads((tmp_path / "run/config.json").read_text())
    saved["mesh"]["fsdp"] = 16
    (tmp_path / "run/config.json").write_text(json.dumps(saved))
    values = evaluate_run(tmp_path / "run")
    last = lines(finished[1])[-1]
    for name in ("loss", "mlm_loss", "mlm_loss_masked", "nsp_accuracy"):
        assert values[name] == pytest.approx(last[name], rel=1e-5)
    with pytest.raises(BadInput, match="config.mesh"):
        evaluate_run(tmp_path / "run", ["mesh.fsdp=16"])
