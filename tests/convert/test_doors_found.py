"""What fuzzing has found at the doors, each once and by hand: refused in one line."""

import json
import os
import shutil

import pytest
from kits import runs
from kits.doors import refused
from kits.small import SMALL, overrides, write_corpus
from kits.texts import PROSE

from bert_jax import config
from bert_jax.cli import main
from bert_jax.errors import BadInput
from bert_jax.tokenizers import tokenizer


def settings(directory, **changes) -> list[str]:
    places = {"corpus.source": directory / "corpus.txt", "store": directory / "store"}
    return ["--config", "demo", *(f"--config.{key}" for key in overrides(SMALL | places | changes))]


CYCLE = "import ml_collections\ndef get_config():\n    c = ml_collections.ConfigDict()\n"
CONFIGS = {
    "deep.json": "[" * 100_000,
    "bands.json": {"bands": [[1.5, 2]]},
    "optimizer.json": {"optimizer": {"learning_rate": 10**400}},
    "phase_order.json": {"phase_order": [["main"]]},
    "phases.json": {"phases": {"main": {"a.b": 1}}},
    "cycle.py": CYCLE + "    c.model = c\n    return c\n",
    "long.py": "def get_config():\n    raise ValueError('x' * 10_000)\n",
}


@pytest.mark.parametrize("name", CONFIGS)
def test_odd_configs(tmp_path, name):
    text = CONFIGS[name]
    if isinstance(text, dict):
        text = json.dumps(config.load("demo").to_dict() | text)
    (tmp_path / name).write_text(text)
    line = refused("config", "--config", tmp_path / name)
    assert str(tmp_path / name) in line or name.removesuffix(".json") in line


def test_a_model_whose_pieces_are_not_utf_8(tmp_path):
    tokenizer.train("unigram", PROSE, 200, True).save(tmp_path)
    path = tmp_path / "sentencepiece.model"
    path.write_bytes(path.read_bytes().replace("▁the".encode(), b"\xe2\x96the"))
    with pytest.raises(BadInput, match="sentencepiece.model"):
        tokenizer.given(path, True)


@pytest.mark.parametrize("name", ["vocab.txt", "a.model", "tokenizer.json"])
def test_pipes_are_not_waited_for(tmp_path, name):
    write_corpus(tmp_path / "corpus.txt", documents=10)
    os.mkfifo(tmp_path / name)
    line = refused("prepare", *settings(tmp_path, **{"tokenizer.path": tmp_path / name}))
    assert name in line and not (tmp_path / "store").exists()


# --- Stores and saved batches ---------------------------------------------------------------------


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    directory = tmp_path_factory.mktemp("sound")
    write_corpus(directory / "corpus.txt", documents=40)
    saving = ["--steps", "0:2", "--save", str(directory / "saved")]
    assert main(["inspect", *settings(directory), *saving]) == 0
    return directory


def flip_last(content: bytes) -> bytes:
    return content[:-1] + bytes([content[-1] ^ 1])


def of_objects(content: bytes) -> bytes:
    return content.replace(b"'<i8'", b"'|O' ", 1)


@pytest.mark.parametrize(
    ("command", "file", "damage", "hashes"),
    [
        ("inspect", "store/train/tokens.npy", flip_last, True),
        ("inspect", "saved/main/0*.npz", flip_last, True),
        ("prepare", "store/unigrams.npy", of_objects, False),
    ],
)
def test_damaged_arrays_are_named(sound, tmp_path, command, file, damage, hashes):
    world = shutil.copytree(sound, tmp_path / "world")
    (path,) = world.glob(file)
    content = path.read_bytes()
    path.write_bytes(damage(content))
    assert path.read_bytes() != content
    keys = {"store": world / "store", "store_hashes": hashes}
    keys |= {"batches": world / "saved"} if "saved" in file else {}
    step = ["--step", 0] if command == "inspect" else []
    assert str(path) in refused(command, *settings(sound, **keys), *step)


# --- What a model card tells ----------------------------------------------------------------------


def test_a_card_of_odd_facts(tmp_path):
    runs.make_run(tmp_path / "run")
    path = tmp_path / "run/run.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"versions": ["x"]}) + "\n")
    line = refused("export", "--workdir", tmp_path / "run", "--output", tmp_path / "out")
    assert line.startswith(f"{path}: ") and not (tmp_path / "out").exists()
