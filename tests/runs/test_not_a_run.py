"""A directory that is not a run is refused as a workdir and stays unchanged, byte for byte."""

import shutil
import uuid

import pytest
from fuzz.attempts import listing
from kits import labelled
from kits.malformed_inputs import refused
from kits.runs import load, pretraining

from bert_jax import train
from bert_jax.commands import export
from bert_jax.convert import finetuning
from bert_jax.errors import BadInput
from bert_jax.runs import status
from bert_jax.runs.workdir import Workdir

FILES = [
    ("thesis.txt", "three years of work"),
    ("config.json", '{"model_type": "bert"}'),  # of another program
    ("run.json", '{"run": "x", "parameters": 1, "vocabulary": {}}'),  # of version 1
    ("status.json", "{}"),
    (".git", "gitdir: elsewhere"),
]


@pytest.mark.parametrize("kind", [*FILES, "export", "store", "half a run"])
def test_a_directory_that_is_not_a_run_is_refused_and_unchanged(finished, tmp_path, kind):
    directory = tmp_path / "there"
    if kind == "export":
        export.export(Workdir(finished[1]), directory, "huggingface")
    elif isinstance(kind, str):
        source = finished[0]["store"] if kind == "store" else finished[1]
        parts = shutil.ignore_patterns("run.json", "checkpoints")
        shutil.copytree(source, directory, ignore=parts)
    else:
        directory.mkdir()
        (directory / kind[0]).write_text(kind[1])
    before = listing(directory)
    assert str(directory) in refused(*pretraining(finished[0], directory))
    assert listing(directory) == before


def test_a_workdir_is_refused_before_the_start_is_read(tmp_path):
    """Fine-tuning opens no model and builds no store for a directory that is not a run."""
    (tmp_path / "thesis.txt").write_text("three years of work")
    config = labelled.load("glue:sst2", labelled.places(tmp_path / "none", tmp_path / "data"))
    with pytest.raises(BadInput, match=f"--workdir {tmp_path}:"):
        train.pretrain(config, tmp_path, finetuning.resolve)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


@pytest.mark.slow
def test_a_run_killed_before_its_first_checkpoint_can_be_started_again(finished, tmp_path):
    """With every file that may exist before run.json, including a store in the workdir under any name."""
    settings, undisturbed = finished
    directory = tmp_path / "run"
    shutil.copytree(settings["store"], directory / "mine")
    (directory / ".lock").touch()
    (directory / ".mine.preparing").mkdir()
    (directory / "logs").mkdir()
    shutil.copytree(undisturbed / "tokenizer", directory / "tokenizer")
    (directory / f".run.json.{uuid.uuid4().hex}").write_text("{")
    config = load(settings | {"store": str(directory / "mine"), "phases.main.steps": 5})
    shutil.copy(undisturbed / "config.json", directory)
    assert train.pretrain(config, directory) == 0
    assert status.status(directory)["state"] == "done"
