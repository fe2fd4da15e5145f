"""A refusal of a store, a vocabulary or a model names what to do."""

import json
import shutil

import pytest
from kits.runs import load

from bert_jax.convert import load_model
from bert_jax.data import store as stores
from bert_jax.data.vocabulary import tokenizer_from_file
from bert_jax.errors import BadInput
from bert_jax.runs.workdir import Workdir


@pytest.fixture
def copy(finished, tmp_path):
    """Copies of the store and the workdir of a finished run."""
    settings, run = finished
    for source, name in ((settings["store"], "store"), (run, "run")):
        shutil.copytree(source, tmp_path / name)
    return tmp_path


def damage(path, **changes):
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


@pytest.mark.parametrize(
    "name, changes, hint",
    [
        ("manifest.json", {"vocabulary": 1}, "run bert-jax prepare"),
        ("manifest.json", {"format": 1}, "run bert-jax prepare"),
        ("manifest.json", {"digest": 1, "format": None}, "run bert-jax prepare"),
        ("train/tokens.npy", None, "make it again"),
    ],
)
def test_of_a_store(copy, name, changes, hint):
    path = copy / "store" / name
    damage(path, **changes) if changes else path.write_bytes(b"?")
    with pytest.raises(BadInput, match=f"{path}: .*; .*{hint}"):
        opened = stores.open_store(copy / "store")
        stores.open_split(opened.path / "train", [])


@pytest.mark.parametrize("name", ["vocab.txt", "tokenizer.json", "spiece.model", "words.bin"])
def test_of_a_vocabulary(finished, tmp_path, name):
    path = tmp_path / name
    path.write_text("one\ntwo\n")
    config = load(finished[0], **{"tokenizer.path": path})
    with pytest.raises(BadInput, match=f"{path}: .*; name another file in config.tokenizer.path"):
        tokenizer_from_file(config)


@pytest.mark.parametrize(
    "name, hint",
    [
        ("run.json", "name the workdir of one"),
        ("config.json", "name the workdir of one"),
        ("checkpoints", "wait for the first, or train on"),
    ],
)
def test_of_a_run(copy, name, hint):
    path = copy / "run" / name
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    with pytest.raises(BadInput, match=f"; {hint}"):
        load_model.open_run(Workdir(copy / "run"))
