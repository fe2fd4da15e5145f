"""Rows of 1,024 pieces by local and memory-compressed attention in turn, on the documentation inside of Python:

    bert-jax pretrain --config examples/long/config.py --workdir runs/long

The same by attention to all tokens:

    bert-jax pretrain --config examples/long/config.py:full --workdir runs/long_full
"""

from bert_jax.configs import base


def get_config(attention="long"):
    model = {"long": "long.model", "full": "gpt"}[attention]
    config = base.get_config(model=model, objective="causal_lm", task="token_blocks")
    config.store = "stores/long"
    config.corpus.sentences = "none"
    config.tokenizer.kind = "byte_bpe"
    config.tokenizer.size = 4096
    config.tokenizer.lowercase = False

    config.model.layers = 4
    config.model.width = 128
    config.model.heads = 4
    config.model.max_length = 1024
    config.model.positions = "rotary"
    config.model.dropout = 0.0
    config.model.attention_dropout = 0.0
    config.model.initializer = 0.04
    if attention == "long":
        config.model.block = 128

    # A step of `full` takes 1.7 times as long.
    steps = {"long": 670, "full": 400}[attention]
    config.phases.main = base.phase(steps=steps, length=1024, batch=4)
    config.optimizer.learning_rate = 3e-3
    config.optimizer.beta2 = 0.99
    config.optimizer.bias_correction = True
    config.optimizer.weight_decay = 0.1
    config.schedule.name = "cosine"
    config.schedule.warmup = 100

    # Steps between two lines of the log, two evaluations, and two checkpoints.
    config.log.every = 50
    config.evaluate.every = 100
    config.evaluate.rows = 64
    config.checkpoint.every = 100
    return config
