"""A small BERT trained on the documentation inside every Python installation: minutes on two CPU cores.

bash launch/local.sh        or        bert-jax pretrain --config demo --workdir runs/demo
"""

from bert_jax.configs import base

# Held-out loss, with Python 3.11's documentation and constraints.txt: the range of three runs on two machines, with two
# seeds, widened by 0.15.
EXPECTED_LOSS = ((700, 4.8, 5.3), (1400, 3.9, 4.55), (2100, 3.5, 4.1), (2800, 3.35, 3.95))


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
