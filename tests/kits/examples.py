"""The systems of examples/, each with a config that is small enough for a test."""

from kits.paths import ROOT
from kits.small import overrides

from bert_jax import config as configs
from bert_jax import registry
from bert_jax.objectives import base
from bert_jax.tasks.feed import open_feed

EXAMPLES = ROOT / "examples"
registry.add_folders([str(EXAMPLES)])

# Of all: twenty steps on eight devices.
STEPS = {
    "dtype": "float32",
    "compilation_cache": "",
    "corpus.workers": 1,
    "schedule.warmup": 5,
    "phases.main.steps": 20,
    "phases.main.batch": 16,
    "log.every": 5,
    "log.report": False,
    "evaluate.every": 10,
    "evaluate.rows": 16,
    "checkpoint.every": 10,
    "checkpoint.keep": 2,
}
TEXT = ROOT / "docs/*.md"
NETWORK = {"model.width": 32, "model.heads": 4, "optimizer.learning_rate": 3e-3}
POSITIONS = NETWORK | {
    "corpus.source": "builtin:numbers[dev]",
    "model.layers": 1,
    "model.max_length": 32,
    "model.dropout": 0.1,
    "model.attention_dropout": 0.1,
    "phases.main.length": 32,
}
LONG = NETWORK | {"model.layers": 2, "model.max_length": 32, "phases.main.length": 32}
# {config: its other keys, and their values in tests}
SMALL = {
    "universal/config.py": {
        "model.layers": 1,
        "model.decoder_layers": 1,
        "model.width": 32,
        "model.feed_forward": 32,
        "model.dropout": 0.1,
        "phases.main.length": 64,
        "objective.ponder": 0.01,
        "task.train": "dev.json",
        "task.dev": "copy.json",
        "optimizer.learning_rate": 3e-3,
    },
    "positions/config.py": POSITIONS | {"model.distance": 8},
    "positions/config.py:shaw": POSITIONS | {"model.distance": 8},
    "positions/config.py:both": POSITIONS | {"model.distance": 8},
    "positions/config.py:absolute": POSITIONS,
    "recurrent/config.py": {
        "model.layers": 2,
        "model.cell": "lstm",
        "model.reach": "local_p",
        "model.width": 32,
        "model.dropout": 0.1,
        "phases.main.length": 32,
        "optimizer.learning_rate": 3e-3,
    },
    "elmo/config.py": {
        "corpus.source": TEXT,
        "corpus.heldout": 0.1,
        "tokenizer.size": 600,
        "task.characters": 12,
        "model.filters": "4,8,8",
        "model.character_width": 4,
        "model.cell": 24,
        "model.width": 16,
        "model.unroll": 6,
        "objective.samples": 100,
        "phases.main.length": 24,
        "optimizer.learning_rate": 1e-2,
    },
    "elmo/config_tagger.py": {
        "tokenizer.size": 200,
        "task.epochs": 0,
        "task.characters": 12,
        "task.train": "dev.json",
        "task.dev": (),
        "model.character_width": 4,
        "model.word_width": 8,
        "model.word_filters": 8,
        "model.state": 16,
        "phases.main.length": 24,
        "optimizer.learning_rate": 1e-2,
    },
    "long/config.py": LONG | {"model.block": 8, "tokenizer.size": 300, "tokenizer.sample": 1},
    "long/config_digits.py": NETWORK | {"model.layers": 1},
    "long/config_characters.py": LONG,
    "xlnet/config.py": {
        "corpus.source": TEXT,
        "corpus.format": "files",
        "tokenizer.size": 300,
        "model.layers": 1,
        "model.width": 32,
        "model.dropout": 0.1,
        "model.attention_dropout": 0.1,
        "phases.main.length": 48,
        "phases.main.max_predictions": 8,
        "optimizer.learning_rate": 1e-2,
    },
    "xlnet/config_transformer_xl.py": {
        "corpus.source": TEXT,
        "corpus.format": "files",
        "tokenizer.size": 300,
        "model.layers": 1,
        "model.width": 32,
        "model.dropout": 0.1,
        "model.segment": 16,
        "model.memory": 16,
        "phases.main.length": 48,
        "optimizer.learning_rate": 1e-2,
    },
}


def path_of(name: str) -> str:
    """Returns the path of a config in EXAMPLES."""
    return str(EXAMPLES / name)


def load(name: str, *changes: str):
    """Returns the small config of an example; the name may have an argument. changes: further overrides."""
    keys = STEPS | SMALL.get(name, SMALL[name.partition(":")[0]])
    return configs.load(path_of(name), [*overrides(keys), *changes])


def prepare(name: str, directory, *changes: str) -> tuple:
    """Prepares the store of the small config of an example; returns (objective, the first batch)."""
    config = load(name, f"store={directory}/store", *changes)
    feed = open_feed(config, 0)
    (phase,) = configs.phases(config)
    return base.make(config, feed.vocabulary), next(feed.train(phase, 0, 1))
