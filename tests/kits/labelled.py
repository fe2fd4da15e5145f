"""Small tasks with labelled examples: files, a model to start from, and runs of `finetune`."""

import numpy as np
from kits import runs
from kits.small import overrides
from kits.texts import PROSE

from bert_jax import config as configs
from bert_jax.commands import finetune
from bert_jax.tokenizers import tokenizer as tokenizers

WORDS = sorted({word for text in PROSE for word in text.lower().split() if word.isalpha()})
KEYS = {
    "dtype": "float32",
    "compilation_cache": "",
    "task.epochs": 12.0,
    "objective.pool": "mean",
    "optimizer.learning_rate": 3e-3,
    "phases.main.length": 32,
    "phases.main.batch": 16,
    "log.every": 10,
    "checkpoint.every": 20,
    "model.dropout": 0.0,
    "model.attention_dropout": 0.0,
}


def tokenizer():
    return tokenizers.train("wordpiece", PROSE, runs.SIZES["wordpiece"], True)


def start(directory):
    """Writes a run of the small masked LM with random parameters to start from; returns its directory."""
    runs.make_run(directory / "start", "objective.pair_task=nsp")
    return directory / "start"


def texts(number: int, seed: int = 0) -> list[str]:
    """Returns texts of 1 to 12 random words."""
    draw = np.random.default_rng(seed)
    return [" ".join(draw.choice(WORDS, draw.integers(1, 13))) for _ in range(number)]


def write_tsv(path, rows, header="sentence\tlabel") -> None:
    lines = ("\t".join(map(str, row)) for row in rows)
    path.write_text("\n".join([header, *lines]) + "\n")


def sentences(directory, train: int = 160, dev: int = 40):
    """Writes train.tsv and dev.tsv of texts whose label is whether they are short; returns the directory."""
    directory.mkdir(exist_ok=True)
    for seed, (name, number) in enumerate({"train": train, "dev": dev}.items()):
        rows = [(text, "short" if len(text) < 40 else "long") for text in texts(number, seed)]
        write_tsv(directory / f"{name}.tsv", rows)
    return directory


def load(config: str, settings: dict):
    return configs.load(config, overrides(KEYS | settings))


def settings(directory) -> dict:
    """Returns the keys of a run on `sentences`, with a store and a model to start from in the directory."""
    return {
        "init_from": start(directory),
        "task.data": sentences(directory / "data"),
        "store": directory / "store",
    }


def command(settings: dict, workdir) -> list[str]:
    keys = [f"--config.{override}" for override in overrides(KEYS | settings)]
    return ["finetune", "--config", "glue:sst2", *keys, "--workdir", str(workdir)]


def tune(config: str, settings: dict, workdir) -> None:
    assert finetune.finetune(load(config, settings), str(workdir)) == 0
