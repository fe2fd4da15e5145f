"""What is sound and is copied to be damaged: a corpus, its store, saved batches, a run, models, vocabularies."""

import contextlib
import json
import os
import shutil
from pathlib import Path
from typing import NamedTuple

from kits import outside
from kits.corpora import make_text
from kits.small import SMALL, overrides
from kits.texts import PROSE

from bert_jax.cli import main
from bert_jax.tokenizers import tokenizer

FEW_STEPS = {"phases.main.steps": 4, "log.every": 2, "checkpoint.every": 2, "evaluate.every": 0}
SETTINGS = SMALL | FEW_STEPS | {"corpus.heldout": 0.2, "model.width": 16}
DOCUMENTS = 40
STEPS, EARLIER = 4, 2  # of the run, and of its checkpoint before the last


class World(NamedTuple):
    path: Path
    settings: dict  # {key: value} of the config over the corpus and the store
    digests: list[str]  # of the batch of each step
    exported: dict[int, Path]  # {step: the run as it is exported then}

    @property
    def config(self) -> Path:
        """The same settings as a file."""
        return self.path / "config.json"

    def arguments(self, **changes) -> list[str]:
        keys = overrides(self.settings | changes)
        return ["--config", "demo", *(f"--config.{key}" for key in keys)]


def make_world(path: Path) -> World:
    path.mkdir(parents=True)
    (path / "corpus.txt").write_text("\n\n".join(make_text(DOCUMENTS)))
    outside.write_vocabulary(path, outside.PIECES)
    for kind, size in (("unigram", 200), ("byte_bpe", 300)):
        tokenizer.train(kind, PROSE, size, True).save(path / kind)
    outside.write_huggingface(path / "huggingface")
    outside.write_google(path / "google")
    places = {"corpus.source": path / "corpus.txt", "store": path / "store"}
    exported = {STEPS: path / "exported", EARLIER: path / "exported-earlier"}
    world = World(path, SETTINGS | places | {"tokenizer.path": path / "vocab.txt"}, [], exported)
    with open(os.devnull, "w") as nothing, contextlib.redirect_stdout(nothing):
        done(["config", *world.arguments(), "--json", world.config])
        done(["pretrain", *world.arguments(), "--workdir", path / "run"])
        steps = ["--steps", f"0:{STEPS}", "--save", path / "saved"]
        done(["inspect", *world.arguments(), *steps])
        done(["export", "--workdir", path / "run", "--output", exported[STEPS]])
        earlier = Path(shutil.copytree(path / "run", path / "earlier"))
        shutil.rmtree(earlier / "checkpoints" / str(STEPS))
        done(["export", "--workdir", earlier, "--output", exported[EARLIER]])
    for step in range(STEPS):
        file = path / "batch.json"
        with open(os.devnull, "w") as nothing, contextlib.redirect_stdout(nothing):
            done(["inspect", *world.arguments(), "--step", step, "--json", file])
        world.digests.append(json.loads(file.read_text())["sha256"])
    return world


def done(arguments: list) -> None:
    assert main([str(argument) for argument in arguments]) == 0
