"""Texts labelled by what a translator's encoder says about them; see cove.md. The argument is the translator's config:

    bert-jax pretrain --config examples/elmo/config_cove.py:translate_demo --config.init_from=runs/translator \\
        --config.tokenizer.path=runs/translator --workdir runs/cove
"""

from pathlib import Path

from bert_jax.configs import base
from elmo import cove

from bert_jax import config as configs


def get_config(translator="translate_demo"):
    config = base.get_config(model="elmo.cove", objective="classifier", task="classification")
    config.store = "stores/cove"
    config.task.data = str(Path(__file__).parent / "data")
    config.task.update(train="parity.tsv", dev=(), text=("text",), heldout=0.3, epochs=0.0)
    trained = configs.load(translator)
    for key in cove.DEFAULTS:
        config.model[key] = trained.model[key]
    config.tokenizer.size = trained.tokenizer.size
    config.optimizer.frozen = True
    config.objective.pool = "concat"  # the first vector, the mean and the maxima

    config.phases.main = base.phase(steps=1000, length=64, batch=16)
    config.optimizer.learning_rate = 3e-3
    config.optimizer.bias_correction = True
    config.schedule.warmup = 20
    config.log.every = 50
    config.evaluate.every = 0
    config.checkpoint.every = 500
    return config
