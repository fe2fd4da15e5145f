"""Whole runs: what they leave, how they resume, stop and refuse."""

import json
import shutil

import pytest
from kits import running
from kits.running import assert_same_bits, lines, load, params
from kits.small import overrides, write_corpus

from bert_jax import config, train
from bert_jax.commands.evaluate import evaluate_run
from bert_jax.errors import BadInput
from bert_jax.runs import status, workdir


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return running.train(tmp_path_factory.mktemp("world"))


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
    assert train.pretrain(load(settings), tmp_path / "run") == 0
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
        train.pretrain(load(settings), tmp_path / "run")
    assert sorted(str(path) for path in (tmp_path / "run").rglob("*")) == before


def test_it_learns(world):
    losses = [line["mlm_loss"] for line in lines(world[1]) if line["split"] == "train"]
    assert losses[-1] < losses[0] - 0.5


def test_two_processes_do_not_share_a_workdir(world, tmp_path):
    settings, _ = world
    with workdir.locked(tmp_path / "run"):
        with pytest.raises(BadInput, match="another process is training in it"):
            train.pretrain(load(settings), tmp_path / "run")
    assert [path.name for path in (tmp_path / "run").iterdir()] == [".lock"]


def test_stray_directories_are_not_checkpoints(world, tmp_path):
    settings, undisturbed = world
    shutil.copytree(undisturbed, tmp_path / "run")
    for name in ("22", "30", "notes"):  # the first in the way of the next save
        (tmp_path / "run/checkpoints" / name).mkdir()
    assert evaluate_run(tmp_path / "run")["step"] == 20
    assert train.pretrain(load(settings, **{"phases.main.steps": 22}), tmp_path / "run") == 0
    assert status.status(tmp_path / "run")["last_checkpoint"] == 22


def test_old_checkpoints_are_kept_by_the_config(world, tmp_path):
    settings, _ = world
    keys = {"checkpoint.every": 5, "checkpoint.keep": 1, "checkpoint.keep_every": 10}
    assert train.pretrain(load(settings, **keys), tmp_path / "run") == 0
    kept = {path.name for path in tmp_path.glob("run/checkpoints/*")}
    assert kept == {"10", "20"}


def test_a_finished_run_is_done_at_once(world, capsys):
    settings, workdir = world
    before = {path: path.stat().st_mtime_ns for path in workdir.rglob("*")}
    assert train.pretrain(load(settings), workdir) == 0
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
        return train.pretrain(settings, tmp_path / "run")

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
        train.pretrain(load(settings, seed=1), workdir)
    assert (workdir / "config.json").read_bytes() == before


def test_another_store_is_refused(world, tmp_path):
    settings, workdir = world
    write_corpus(tmp_path / "corpus.txt", documents=50, seed=1)
    other = {"corpus.source": str(tmp_path / "corpus.txt")}
    with pytest.raises(BadInput, match="corpus.source"):
        train.pretrain(load(settings, **other), tmp_path / "run")
    with pytest.raises(BadInput, match="corpus.source"):
        train.pretrain(load(settings, **other, store=tmp_path / "store"), workdir)
    assert not (tmp_path / "run").exists() and not (tmp_path / "store").exists()


def test_evaluate_gives_the_runs_last_numbers(world):
    values = evaluate_run(world[1])
    last = lines(world[1])[-1]
    for name in ("loss", "mlm_loss", "mlm_loss_masked", "nsp_accuracy"):
        assert values[name] == pytest.approx(last[name], rel=1e-5)


def test_evaluate_takes_the_devices_that_are_here(world, tmp_path):
    """Of a run on sixteen; a mesh that is asked for has to fit."""
    shutil.copytree(world[1], tmp_path / "run")
    saved = json.loads((tmp_path / "run/config.json").read_text())
    saved["mesh"]["fsdp"] = 16
    (tmp_path / "run/config.json").write_text(json.dumps(saved))
    assert evaluate_run(tmp_path / "run") == pytest.approx(evaluate_run(world[1]), rel=1e-5)
    with pytest.raises(BadInput, match="config.mesh: data=-1 fsdp=16 tensor=1 does not fit 8"):
        evaluate_run(tmp_path / "run", ["mesh.fsdp=16"])
