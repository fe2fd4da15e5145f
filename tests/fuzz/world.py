"""What is sound and is copied to be damaged: a run and its store, saved batches, exports, models, vocabularies."""

import json
import shutil
from pathlib import Path
from typing import NamedTuple

from kits import outside, runs
from kits.small import SMALL, overrides
from kits.texts import PROSE

from bert_jax.cli import main
from bert_jax.tokenizers import tokenizer
from fuzz.attempts import captured, text_of

BATCHES = 4  # steps of which the batch is known
EARLIER, STEPS = SMALL["checkpoint.every"], SMALL["phases.main.steps"]  # of the run's checkpoints
TEXT = "the [MASK] dog"


class World(NamedTuple):
    path: Path
    settings: dict  # {key: value} of the config over the corpus and the store
    digests: list[str]  # of the batch of each step
    exported: dict[int, Path]  # {step: the run as it is exported then}
    answers: dict[int, list]  # {step: what it predicts for TEXT}

    def arguments(self, **changes) -> list[str]:
        keys = overrides(self.settings | changes)
        return ["--config", "demo", *(f"--config.{key}" for key in keys)]


def make_world(path: Path, finished=None) -> World:
    """finished: (settings, workdir) of a run as runs.train leaves it, or None to train one."""
    settings, workdir = finished or runs.train(path.with_name("trained"))
    shutil.copytree(workdir.parent, path)
    for kind, size in (("unigram", 200), ("byte_bpe", 300)):
        tokenizer.train(kind, PROSE, size, True).save(path / kind)
    outside.write_huggingface(path / "huggingface")
    outside.write_google(path / "google")
    world = World(path, settings | {"store": f"{path}/store"}, [], {}, {})
    told("inspect", *world.arguments(), "--steps", f"0:{BATCHES}", "--save", path / "saved")
    for step in range(BATCHES):
        batch = told("inspect", *world.arguments(), "--step", step, "--json", "-")
        world.digests.append(json.loads(batch)["sha256"])
    earlier = shutil.copytree(path / "run", path / "earlier")
    shutil.rmtree(earlier / "checkpoints" / str(STEPS))
    for step, run in {STEPS: path / "run", EARLIER: earlier}.items():
        world.exported[step] = path / f"exported-{step}"
        told("export", "--workdir", run, "--output", world.exported[step])
        world.answers[step] = json.loads(told("predict", "--model", run, TEXT, "--json", "-"))
    return world


def told(*arguments) -> str:
    with captured() as (out, err):
        assert main([str(argument) for argument in arguments]) == 0, text_of(err)
    return text_of(out)
