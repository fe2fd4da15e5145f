"""Melodies that repeat a motif, by a GPT with relative positions:

    bert-jax pretrain --config examples/positions/config.py --workdir runs/positions

The same with absolute positions; `:both` has both:

    bert-jax pretrain --config examples/positions/config.py:absolute --workdir runs/positions_absolute
"""

from bert_jax.configs import base


def get_config(positions="relative"):
    config = base.get_config(model="positions.model", objective="causal_lm", task="token_blocks")
    config.store = "stores/melodies"
    config.corpus.source = "builtin:numbers"
    config.corpus.field = "en"
    config.corpus.map = "positions.melodies.melody"
    config.corpus.sentences = "lines"
    # Special tokens, digits, and a piece for each note, in all fewer.
    config.tokenizer.size = 100

    config.model.layers = 2
    config.model.width = 64
    config.model.heads = 4
    config.model.max_length = 128
    config.model.initializer = 0.08
    config.model.dropout = 0.0
    config.model.attention_dropout = 0.0
    config.model.distance = 64
    config.model.absolute = positions == "both"
    if positions == "absolute":
        config.model.relative = "none"

    config.phases.main = base.phase(steps=1500, length=128, batch=32)
    config.optimizer.learning_rate = 2e-3
    config.schedule.warmup = 200

    # Steps between two lines of the log, two evaluations, and two checkpoints.
    config.log.every = 100
    config.evaluate.every = 500
    config.checkpoint.every = 500
    return config
