"""Small fine-tuning: a model to start from, and the config, store and dataset of a task."""

import jax
import numpy as np
from kits.rows import assemble
from kits.runs import make_run
from kits.small import overrides
from kits.texts import INVENTED, PROSE

from bert_jax import config as configs
from bert_jax.commands import finetune
from bert_jax.data import store as stores
from bert_jax.objectives import base
from bert_jax.tasks import base as tasks
from bert_jax.tokenizers import tokenizer as tokenizers
from bert_jax.tokenizers.special_tokens import Vocabulary

WORDS = sorted(set(INVENTED), key=lambda word: (len(word), word))
LENGTH = 32
KEYS = {
    "dtype": "float32",
    "compilation_cache": "",
    "phases.main.length": LENGTH,
    "phases.main.batch": 16,
    "optimizer.learning_rate": 1e-2,
    "log.every": 10,
    "checkpoint.every": 100,
}
ENTITIES = {"task.train": "train.txt", "task.dev": "dev.txt"}
CHOICE = {"task.train": "train.jsonl", "task.dev": "dev.jsonl", "phases.main.length": 4 * LENGTH}
TASKS = {"ner": ENTITIES, "swag": CHOICE}


def make_model(directory):
    """Writes a run of a model of one layer without dropout, which has the shorter words as pieces; returns its path."""
    keys = {"dropout": 0.0, "attention_dropout": 0.0, "max_length": 128, "layers": 1}
    words = tokenizers.train("wordpiece", PROSE, 300, True)
    make_run(directory, *(f"model.{key}={value}" for key, value in keys.items()), words=words)
    return directory


def load(name: str, model, data, **keys):
    """Returns a config of configs/, with files of TASKS in the directory `data`."""
    places = {"init_from": model, "task.data": data, "store": data / "store"}
    settings = KEYS | TASKS[name] | places | keys
    return configs.load(name, overrides(settings))


def resolve(config):
    """Builds the store of the examples; returns (config, store, dataset, phase)."""
    config = finetune.resolve(config)
    store = stores.open_store(config.store)
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
    objective, draw = base.make(config, vocabulary), np.random.default_rng(0)
    params = jax.jit(objective.init)(jax.random.key(0), batch)
    noise = lambda x: x + draw.normal(0, 0.1, x.shape).astype(np.float32)  # noqa: E731
    return objective, jax.tree.map(noise, params)


def write_sentences(path, number: int, seed: int) -> None:
    """Writes sentences in which the first five words are names, and the words after a name belong to it."""
    draw = np.random.default_rng(seed)
    lines = []
    for _ in range(number):
        before = "O"
        for place in draw.integers(0, 20, draw.integers(1, 9)):
            before = "B-per" if place < 5 else "I-per" if before == "B-per" else "O"
            lines.append(f"{WORDS[place]}\t{before}")
        lines.append("")
    path.write_text("\n".join(lines))
