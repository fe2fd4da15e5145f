"""A small BERT trained on the documentation inside every Python installation: minutes on two CPU cores.

bash launch/local.sh        or        bert-jax pretrain --config demo --workdir runs/demo

The held-out loss at [MASK] ends at 3.55, 3.64 and 3.69 nats (three seeds, Python 3.11's documentation,
constraints.txt), 2.2 nats under that of the frequencies of tokens, after 90 to 100 seconds of training on two cores.
"""

from bert_jax.configs import base


def get_config():
    config = base.get_config()

    # The text is Python's documentation, the default of `corpus`. `prepare` writes it into this store.
    config.store = "stores/demo"
    config.tokenizer.size = 8192

    config.model.layers = 2
    config.model.width = 128
    config.model.heads = 4
    config.model.max_length = 32
    # So short a run sees every row about once and cannot overfit.
    config.model.dropout = 0.0
    config.model.attention_dropout = 0.0
    # 0.02 suits a width of 768; here attention would stay uniform for long.
    config.model.initializer = 0.06

    # One phase of short rows. A high rate and a long warm-up: attention leaves the frequencies of tokens early.
    config.phases.main = base.phase(steps=1820, length=32, batch=96, max_predictions=5)
    config.optimizer.learning_rate = 6e-3
    config.optimizer.beta2 = 0.99
    # Without it the first updates at this rate are too large.
    config.optimizer.bias_correction = True
    config.schedule.warmup = 630

    # Steps between two lines of the log, two evaluations, and two checkpoints.
    config.log.every = 50
    config.evaluate.every = 950
    config.evaluate.rows = 512
    config.checkpoint.every = 950
    return config
