"""Small tasks with labelled examples: files, a model to start from, stores, batches, and runs of `finetune`."""

import json

import jax
import numpy as np
import pytest
from kits import runs
from kits.rows import assemble
from kits.small import overrides
from kits.texts import INVENTED, PROSE

from bert_jax import config as configs
from bert_jax.convert import finetuning
from bert_jax.data import store as stores
from bert_jax.objectives import base
from bert_jax.tasks import base as tasks
from bert_jax.tokenizers import tokenizer as tokenizers
from bert_jax.tokenizers.special_tokens import Vocabulary
from bert_jax.train import pretrain

WORDS = sorted(set(INVENTED), key=lambda word: (len(word), word))  # the shorter ones are pieces
LENGTH = 32
CHOICES = "sent1", "sent2", "ending0", "ending1", "ending2", "ending3"
KEYS = {
    "dtype": "float32",
    "compilation_cache": "",
    "task.epochs": 12.0,
    "optimizer.learning_rate": 3e-3,
    "phases.main.length": LENGTH,
    "phases.main.batch": 16,
    "log.every": 10,
    "log.report": False,
    "checkpoint.every": 100,
    "model.dropout": 0.0,
    "model.attention_dropout": 0.0,
}
JSONL = {"task.train": "train.jsonl", "task.dev": "dev.jsonl"}
WINDOWS = {"task.question_length": 6, "task.stride": 7}
OWN = {
    "ner": {"task.train": "train.txt", "task.dev": "dev.txt"},
    "swag": JSONL | {"phases.main.length": 4 * LENGTH},
    "squad": WINDOWS | {"task.train": "a.json", "task.dev": "()"},
}


# --- Models and files -----------------------------------------------------------------------------


def tokenizer():
    return tokenizers.train("wordpiece", PROSE, 300, True)


def start(directory):
    """Writes a run of a masked LM of one layer with random parameters to start from; returns its directory."""
    keys = "task.pair_task=nsp", "model.max_length=128", "model.layers=1"
    runs.make_run(directory / "start", *keys, words=tokenizer())
    return directory / "start"


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """The directory of `start`; for a test module to import."""
    return start(tmp_path_factory.mktemp("model"))


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


def write_entities(path, number: int, seed: int) -> None:
    """Writes sentences in which the first five words are names, and the words after a name belong to it."""
    draw = np.random.default_rng(seed)
    lines = []
    for _ in range(number):
        label = "O"
        for place in draw.integers(0, 20, draw.integers(1, 9)):
            if place < 5:
                label = "B-per"
            else:
                label = "I-per" if label == "B-per" else "O"
            lines.append(f"{WORDS[place]}\t{label}")
        lines.append("")
    path.write_text("\n".join(lines))


def make_choices(number: int, seed: int, longest: int = 3) -> list[dict]:
    """Returns examples whose right ending has the first word of WORDS, which no other text has."""
    draw = np.random.default_rng(seed)
    examples = []
    for _ in range(number):
        sizes = draw.integers(1, longest + 1, len(CHOICES))
        parts = [" ".join(draw.choice(WORDS[1:20], size)) for size in sizes]
        label = int(draw.integers(4))
        parts[2 + label] += f" {WORDS[0]}"
        examples.append(dict(zip(CHOICES, parts, strict=True)) | {"label": label})
    return examples


def write_choices(directory, train: list[dict], dev: list[dict]) -> None:
    for name, part in (("train", train), ("dev", dev)):
        (directory / f"{name}.jsonl").write_text("\n".join(map(json.dumps, part)))


# --- Configs, stores, batches ---------------------------------------------------------------------


def places(model, data) -> dict:
    return {"init_from": model, "task.data": data, "store": data / "store"}


def load(config: str, settings: dict, **changes):
    return configs.load(config, overrides(KEYS | OWN.get(config, {}) | settings | changes))


def resolve(config):
    """Builds the store of the examples; returns (config, store, dataset, phase)."""
    return opened(finetuning.resolve(config))


def opened(config):
    store = stores.open_store(config.store)
    tasks.fill(config, store)
    return config, store, tasks.make(config, store), configs.phases(config)[0]


def batch_of(dataset, phase) -> tuple[np.ndarray, dict]:
    """Returns the rows of the training split, and their batch."""
    rows = dataset.rows(phase, "train", 0)
    batch = assemble(dataset, phase, rows)
    count = {"rows": np.arange(len(rows), dtype=np.int32)}
    return rows, batch | count | {"row_weights": np.ones(len(rows), np.float32)}


def random_params(config, store, batch):
    """Returns the objective, and parameters of which none is 0 or 1."""
    vocabulary = Vocabulary(store.manifest["vocabulary"], **store.manifest["special"])
    objective = base.make(config, vocabulary)
    draw = np.random.default_rng(0)
    params = jax.jit(objective.init)(jax.random.key(0), batch)
    noise = lambda x: x + draw.normal(0, 0.1, x.shape).astype(np.float32)  # noqa: E731
    return objective, jax.tree.map(noise, params)


# --- Runs -----------------------------------------------------------------------------------------


def settings(directory) -> dict:
    """Returns the keys of a run on `sentences`, with a store and a model to start from in the directory."""
    keys = places(start(directory), sentences(directory / "data"))
    keys |= {"objective.pool": "mean", "checkpoint.every": 20, "train.tokens_per_device": 32}
    return keys | {"store": directory / "store"}


def command(settings: dict, workdir) -> list[str]:
    keys = [f"--config.{override}" for override in overrides(KEYS | settings)]
    return ["finetune", "--config", "glue:sst2", *keys, "--workdir", str(workdir)]


def tune(config, workdir) -> dict:
    """Runs `finetune`; returns the last line, of the last evaluation."""
    assert pretrain(config, str(workdir), finetuning.resolve) == 0
    return runs.lines(workdir)[-1]
