"""ELMo's bidirectional language model (arXiv:1802.05365), small: minutes on two CPU cores, on the documentation inside
every Python installation.

    bert-jax pretrain --config examples/elmo/config.py --workdir runs/elmo
"""

from bert_jax.configs import base


def get_config():
    config = base.get_config(model="elmo.model", objective="elmo.objective", task="elmo.words")
    config.store = "stores/elmo"
    config.corpus.sentences = "none"
    config.tokenizer.size = 8000
    config.tokenizer.lowercase = False
    config.task.characters = 24

    config.model.filters = (16, 32, 48, 64, 64, 64, 64)
    config.model.highways = 1
    config.model.cell = 512
    config.model.width = 128
    config.objective.samples = 1024

    # Eight ranges of 20 words in a row, from one of which to the next the states go on.
    config.phases.main = base.phase(steps=1000, length=160, batch=16)
    config.optimizer.learning_rate = 2e-3
    config.optimizer.bias_correction = True
    config.optimizer.clip = 10.0
    config.schedule.warmup = 100

    # Steps between two lines of the log, two evaluations, and two checkpoints.
    config.log.every = 50
    config.evaluate.every = 500
    config.evaluate.rows = 128
    config.checkpoint.every = 500
    return config
