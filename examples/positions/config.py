"""Melodies that repeat a motif, by a GPT with relative positions:

    bert-jax pretrain --config examples/positions/config.py --workdir runs/positions

The same with absolute positions; `:both` has both, and `:shaw` distances of keys and of values:

    bert-jax pretrain --config examples/positions/config.py:absolute --workdir runs/positions_absolute
"""

from bert_jax.configs import base

# The keys of the model; without any, the package's GPT-2.
POSITIONS = {
    "relative": {"distance": 64},
    "shaw": {"distance": 64, "relative": "gather", "relative_values": True},
    "both": {"distance": 64, "absolute": True},
    "absolute": {},
}


def get_config(positions="relative"):
    keys = POSITIONS[positions]
    model = "positions.model" if keys else "gpt"
    config = base.get_config(model=model, objective="causal_lm", task="token_blocks")
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
    config.model.update(keys)

    config.phases.main = base.phase(steps=1500, length=128, batch=32)
    config.optimizer.learning_rate = 2e-3
    config.schedule.warmup = 200

    # Steps between two lines of the log, two evaluations, and two checkpoints.
    config.log.every = 100
    config.evaluate.every = 500
    config.checkpoint.every = 500
    return config
