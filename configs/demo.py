"""A small BERT trained on the documentation inside every Python installation: minutes on two CPU cores.

bash launch/local.sh        or        bert-jax pretrain --config demo --workdir runs/demo

The held-out loss of masked tokens and next sentences, with Python 3.11's documentation and constraints.txt, is 4.8 to
5.3 nats at step 700, 3.9 to 4.55 at 1,400, 3.5 to 4.1 at 2,100 and 3.35 to 3.95 at the end: the range of three runs on
two machines, widened by 0.15.
"""

from bert_jax.configs import base


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
