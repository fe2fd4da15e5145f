"""Fixtures for saved batches: a store, and a config with two phases and ten steps."""

import json
import shutil
from pathlib import Path

import pytest
from kits import malformed_inputs
from kits.small import SMALL, overrides, write_corpus

from bert_jax import config
from bert_jax.commands import inspect_batch
from bert_jax.data import batch_files
from bert_jax.storage import checksums

PHASES = """from bert_jax.configs import base, demo

def get_config():
    config = demo.get_config()
    config.phase_order = ("short", "long")
    config.phases = base.ConfigDict(dict(
        short=base.phase(steps=6, length=16, batch=16, max_predictions=3),
        long=base.phase(steps=4, length=32, batch=8, max_predictions=5, max_packed=2)))
    return config
"""
KEYS = {key: value for key, value in SMALL.items() if not key.startswith("phases")}
KEYS |= {"log.every": 3, "checkpoint.every": 3, "checkpoint.keep": 9, "model.layers": 1}
KEYS |= {"evaluate.every": 4, "evaluate.rows": 9}


class World:
    """A corpus, a config for it, and a directory for its batches."""

    def __init__(self, directory: Path, seed: int = 0):
        self.path = directory
        self.file = directory / "two.py"
        self.file.write_text(PHASES)
        source = directory / "corpus.txt"
        write_corpus(source, documents=60, seed=seed)
        self.settings = KEYS | {"corpus.source": str(source), "store": str(directory / "store")}
        self.saved = directory / "saved"

    def load(self, **changes):
        return config.load(str(self.file), overrides(self.settings | changes))

    def arguments(self, *options, **changes):
        keys = [f"--config.{key}" for key in overrides(self.settings | changes)]
        return ["--config", str(self.file), *keys, *map(str, options)]

    def save(self, first: int, last: int, directory: Path, **changes) -> dict:
        return inspect_batch.save(self.load(**changes), first, last, directory, lambda line: None)


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> World:
    """A World whose ten steps are saved, at most four per file; for a test module to import."""
    result = World(tmp_path_factory.mktemp("world"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batch_files, "BLOCK", 20_000)
        result.save(0, 10, result.saved)
    assert len(list(result.saved.glob("*/0*.npz"))) > 2
    return result


@pytest.fixture
def half_a_run(finished, tmp_path) -> Path:
    """A copy of the finished run (tests/conftest.py) that ends at step 10 of 20; for a test module to import."""
    run = shutil.copytree(finished[1], tmp_path / "run")
    shutil.rmtree(run / "checkpoints/20")
    (run / "summary.json").unlink()
    return run


def refused(world, tmp_path, **changes) -> str:
    """Runs pretrain, which must be refused without writing anything; returns its one line."""
    before = sorted(tmp_path.rglob("*"))
    arguments = world.arguments("--workdir", tmp_path / "run", **changes)
    line = malformed_inputs.refused("pretrain", *arguments)
    assert sorted(tmp_path.rglob("*")) == before
    return line


def rewrite(directory, changes: dict):
    """Changes the manifest of saved batches and recomputes its digest."""
    manifest = json.loads((directory / "manifest.json").read_text()) | changes
    (directory / "manifest.json").write_text(json.dumps(checksums.sealed(manifest)))
