"""The examples' configs, made small."""

from kits.paths import ROOT

from bert_jax import config as configs
from bert_jax import registry

registry.add_folders([str(ROOT / "examples")])

NETWORK = ["dtype=float32", "model.width=32", "model.heads=4"]
RUN = ["phases.main.steps=20", "phases.main.batch=16", "optimizer.learning_rate=3e-3"]
RUN += ["schedule.warmup=5", "log.every=5", "log.report=False", "evaluate.every=10"]
RUN += ["evaluate.rows=24", "checkpoint.every=10", "compilation_cache="]
LONG = [*NETWORK, *RUN, "model.layers=2", "model.max_length=32", "phases.main.length=32"]
# {config: the overrides with which it takes seconds}
SMALL = {
    "long/config.py": [*LONG, "model.block=8", "tokenizer.size=300", "tokenizer.sample=1"],
    "long/config_digits.py": [*NETWORK, *RUN, "model.layers=1"],
    "long/config_characters.py": [*LONG],
}


def load(name, *overrides):
    return configs.load(str(ROOT / "examples" / name), [*overrides])
