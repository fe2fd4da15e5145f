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
TEXT = f"{ROOT}/docs/*.md"
# {config: its other keys, and their values in tests}
SMALL = {
    "universal/config.py": {
        "model.layers": 1,
        "model.decoder_layers": 1,
        "model.width": 32,
        "model.feed_forward": 32,
        "model.dropout": 0.1,
        "phases.main.length": 64,
        "task.train": "dev.json",
        "task.dev": "copy.json",
        "optimizer.learning_rate": 3e-3,
    },
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
    """Returns the small config of an example. changes: further overrides."""
    return configs.load(path_of(name), [*overrides(STEPS | SMALL[name]), *changes])


def prepare(name: str, directory, *changes: str) -> tuple:
    """Prepares the store of the small config of an example; returns (objective, the first batch)."""
    config = load(name, f"store={directory}/store", *changes)
    feed = open_feed(config, 0)
    (phase,) = configs.phases(config)
    return base.make(config, feed.vocabulary), next(feed.train(phase, 0, 1))
