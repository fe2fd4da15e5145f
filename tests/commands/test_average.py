"""`average`: the mean of checkpoints, decided after the run; and the checkpoints that are kept for it."""

import json

import jax
import numpy as np
import pytest
from kits.malformed_inputs import refused
from kits.runs import assert_same_bits, lines, load, make_run, params, pretraining

from bert_jax import train
from bert_jax.checkpoints import reader
from bert_jax.cli import main
from bert_jax.convert import open_model
from bert_jax.tokenizers import tokenizer


@pytest.mark.slow
def test_the_mean_is_a_model(finished, tmp_path, capsys):
    """It equals that of checkpoint.average, is exported and evaluated, and starts a run, but is not trained on."""
    settings, run = finished
    expected = open_model.open_model(run, ["checkpoint.average=2"]).params
    mean = tmp_path / "mean"
    assert main(["average", f"{run}@20", f"{run}@10", "--output", str(mean)]) == 0
    model = open_model.open_model(mean)
    assert_same_bits(model.params, expected)
    assert model.step == 20 and model.info["mean_of"] == [f"{run}@20", f"{run}@10"]
    thirds = jax.tree.map(lambda *x: sum(x) / 3, *[params(run)] * 2, expected)
    assert main(["average", str(run), str(run), str(mean), "--output", str(tmp_path / "3")]) == 0
    for ours, theirs in zip(
        jax.tree.leaves(params(tmp_path / "3")), jax.tree.leaves(thirds), strict=True
    ):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-7)
    for command in (
        "status --workdir",
        "evaluate --model",
        f"export --output {tmp_path}/out --model",
    ):
        assert main([*command.split(), str(mean)]) == 0
    text = refused(*pretraining(settings, mean))
    assert str(mean) in text and "config.init_from" in text
    text = refused(*pretraining(settings, tmp_path / "run", continue_from=mean))
    assert str(mean) in text and "config.init_from" in text
    keys = {"init_from": mean, "optimizer.learning_rate": 0.0, "evaluate.every": 0}
    assert train.pretrain(load(settings, **keys), tmp_path / "run") == 0
    assert_same_bits(params(tmp_path / "run"), expected)


def test_other_networks_and_tokenizers_are_refused(finished, tmp_path):
    run = finished[1]
    words = tokenizer.load(run / "tokenizer")
    make_run(tmp_path / "other", "model.layers=1")
    make_run(tmp_path / "wide", "model.layers=1", "model.feed_forward=64", words=words)
    for names, named in {
        (run, tmp_path / "other"): "other: has another tokenizer",
        (run, tmp_path / "wide"): "wide: config.model.feed_forward=64",
        (run, f"{run}@15"): "no such checkpoint; the run has 20, 10",
        (run, tmp_path): "not a run",
    }.items():
        output = tmp_path / "mean"
        assert named in refused("average", *map(str, names), "--output", str(output))
        assert not output.exists()


@pytest.mark.slow
def test_the_best_checkpoints_are_kept(finished, tmp_path):
    """Two by their held-out loss, beside the newest one."""
    keys = {"phases.main.steps": 25, "evaluate.every": 5, "checkpoint.every": 5}
    keys |= {"checkpoint.keep": 1, "checkpoint.keep_best": 2, "optimizer.learning_rate": 0.3}
    run = tmp_path / "run"
    assert train.pretrain(load(finished[0], **keys), run) == 0
    losses = {}
    for line in lines(run):
        if line["split"] == "heldout":
            losses[line["step"]] = line["loss"]
    best = sorted([5, 10, 15, 20], key=losses.get)[:2]
    assert set(reader.steps(run / "checkpoints")) >= {25, *best}
    assert len(reader.steps(run / "checkpoints")) <= 4
    keys |= {"checkpoint.keep": 3, "checkpoint.average": 2}
    assert train.pretrain(load(finished[0], **keys), run) == 0
    assert json.loads((run / "status.json").read_text())["state"] == "done"


def test_keeping_the_best_needs_evaluated_checkpoints(finished, tmp_path):
    keys = {"checkpoint.keep_best": 2, "evaluate.every": 0}
    text = refused(*pretraining(finished[0], tmp_path / "run", **keys))
    assert "config.checkpoint.keep_best=2: " in text and "evaluate.every=0" in text
