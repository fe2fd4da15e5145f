"""Intact inputs, which are copied and damaged: a run and its store, saved batches, models, vocabularies."""

import json
import shutil
from pathlib import Path

from kits import external_models
from kits.small import SMALL, overrides
from kits.texts import PROSE

from bert_jax.tokenizers import tokenizer
from fuzz.attempts import done

BATCHES = 4  # steps with saved batches
# Steps of the run's checkpoints.
EARLIER, STEPS = SMALL["checkpoint.every"], SMALL["phases.main.steps"]
TEXT = "the [MASK] dog"


class World:
    """The intact inputs, in `path`.

    digests: SHA-256 of the batch of each step. exported: {step: directory of the run's export}. predictions: {step:
    result of `predict` for TEXT}.
    """

    def __init__(self, path: Path, settings: dict, workdir: Path):
        """settings, workdir: those of the finished run, which is copied."""
        shutil.copytree(workdir.parent, path)
        self.path, self.settings = path, settings | {"store": f"{path}/store"}
        for kind, size in (("unigram", 200), ("byte_bpe", 300)):
            tokenizer.train(kind, PROSE, size, True).save(path / kind)
        external_models.write_huggingface(path / "huggingface")
        external_models.write_google(path / "google")
        show = ["inspect", *self.arguments()]
        done(*show, "--steps", f"0:{BATCHES}", "--save", path / "saved")
        batches = (done(*show, "--step", step, "--json", "-") for step in range(BATCHES))
        self.digests = [json.loads(batch)["sha256"] for batch in batches]
        earlier = shutil.copytree(path / "run", path / "earlier")
        shutil.rmtree(earlier / "checkpoints" / str(STEPS))
        self.exported, self.predictions = {}, {}
        for step, run in {STEPS: path / "run", EARLIER: earlier}.items():
            self.exported[step] = path / f"exported-{step}"
            done("export", "--workdir", run, "--output", self.exported[step])
            printed = done("predict", "--model", run, TEXT, "--json", "-")
            self.predictions[step] = json.loads(printed)

    def arguments(self, **changes) -> list[str]:
        keys = overrides(self.settings | changes)
        return ["--config", "demo", *(f"--config.{key}" for key in keys)]
