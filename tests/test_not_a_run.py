"""What is not a run is never trained into: the directory stays as it was, to the byte."""

import json
import shutil

import pytest
from kits import running
from kits.running import load

from bert_jax import cli, train
from bert_jax.commands import export
from bert_jax.errors import BadInput


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return running.train(tmp_path_factory.mktemp("world"))


def content(directory) -> dict:
    return {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def write(**files):
    """A maker of a directory that holds these files, `__` for the dot."""

    def make(directory, world):
        directory.mkdir()
        for name, text in files.items():
            (directory / name.replace("__", ".")).write_text(text)

    return make


def copy_store(directory, world):
    shutil.copytree(world[0]["store"], directory)


def make_export(directory, world):
    export.export(world[1], directory, "huggingface")


NO_RUNS = {
    "export": make_export,
    "store": copy_store,
    "text": write(thesis__txt="three years of work"),
    "config of others": write(config__json='{"model_type": "bert"}'),
    "run.json of others": write(run__json='{"program": "train.py"}'),
    "no JSON": write(run__json="parameters vocabulary config"),
    "status of others": write(status__json="{}"),
    "hidden": write(__git="gitdir: elsewhere"),
    "half a run": lambda directory, world: shutil.copytree(
        world[1], directory, ignore=shutil.ignore_patterns("run.json", "checkpoints")
    ),
}


@pytest.mark.parametrize("kind", NO_RUNS)
def test_it_is_refused_and_untouched(world, tmp_path, kind, capsys):
    directory = tmp_path / "there"
    NO_RUNS[kind](directory, world)
    before = content(directory)
    words = [f"--config.{key}={value}" for key, value in world[0].items()]
    assert cli.main(["pretrain", "--config", "demo", "--workdir", str(directory), *words]) == 2
    told = capsys.readouterr().err
    assert str(directory) in told and told.count("\n") == 1
    assert content(directory) == before


def test_a_killed_first_start_is_gone_on_with(world, tmp_path):
    """All that may be there before run.json is, the store in the workdir included."""
    settings, undisturbed = world
    directory = tmp_path / "run"
    shutil.copytree(settings["store"], directory / "store")
    for name in ("config.json", "status.json", ".lock"):
        shutil.copy(undisturbed / name, directory)
    shutil.copytree(undisturbed / "tokenizer", directory / "tokenizer")
    (directory / ".run.json.123").write_text("{")
    settings = settings | {"store": str(directory / "store"), "phases.main.steps": 5}
    with pytest.raises(BadInput, match="tokenizer"):
        (directory / "config.json").rename(tmp_path / "config.json")
        train.pretrain(load(settings), directory)
    (tmp_path / "config.json").rename(directory / "config.json")
    assert train.pretrain(load(settings), directory) == 0
    assert json.loads((directory / "status.json").read_text())["state"] == "done"
