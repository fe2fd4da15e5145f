"""A small BERT trained on the documentation inside every Python installation: minutes on two CPU cores.

bash launch/local.sh        or        bert-jax pretrain --config demo --workdir runs/demo
"""

from bert_jax.configs import base

# Held-out mlm_loss, with Python 3.11's documentation and constraints.txt: the range of three seeds on earlier held-out
# rows and of one on those of today, widened by 0.1.
EXPECTED_LOSS = ((700, 4.2, 4.7), (1400, 3.45, 4.1), (2100, 3.1, 3.75), (2800, 3.0, 3.65))


def get_config():
    config = base.get_config()
    config.store = "stores/demo"
    config.tokenizer.size = 8192
    config.model.layers = 2
    config.model.width = 128
    config.model.heads = 2
    config.model.max_length = 128
    config.model.dropout = 0.0  # so short a run sees every row about once and cannot overfit
    config.model.attention_dropout = 0.0
    config.model.initializer = (
        0.06  # 0.02 suits a width of 768; here attention would stay uniform for long
    )
    config.optimizer.learning_rate = 3e-3
    config.optimizer.bias_correction = (
        True  # without it the first updates at this rate are too large
    )
    config.schedule.name = "cosine"
    config.schedule.warmup = 200
    config.phases.main = base.phase(steps=2800, length=64, batch=64, max_predictions=10)
    config.log.every = 50
    config.evaluate.every = 700
    config.evaluate.rows = 512
    config.checkpoint.every = 700
    return config
