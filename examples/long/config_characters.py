"""A deep network over bytes whose layers all predict the next one; here of the documentation inside of Python:

    bert-jax pretrain --config examples/long/config_characters.py --workdir runs/long_characters

Tiny Shakespeare is --config.corpus.source=input.txt --config.store=stores/long_shakespeare, as of the config
shakespeare_char. Without the losses of the layers below the last one:

    bert-jax pretrain --config examples/long/config_characters.py:plain --workdir runs/long_plain
"""

from bert_jax.configs import base


def get_config(losses="auxiliary"):
    config = base.get_config(model="gpt", objective="long.objective", task="token_blocks")
    config.store = "stores/long_characters"
    config.corpus.format = "files"
    config.corpus.sentences = "none"
    config.corpus.heldout = 0.1
    config.corpus.heldout_by = "end"
    config.tokenizer.kind = "bytes"
    config.tokenizer.lowercase = False
    config.objective.auxiliary = {"auxiliary": 0.5, "plain": 0.0}[losses]

    # With norms behind the layers a deep network is hard to train.
    config.model.norm = "post"
    config.model.layers = 12
    config.model.width = 64
    config.model.heads = 4
    config.model.max_length = 128
    config.model.dropout = 0.0
    config.model.attention_dropout = 0.0
    config.model.initializer = 0.04

    # A step of `auxiliary` takes a fifth longer.
    steps = {"auxiliary": 1750, "plain": 2110}[losses]
    config.phases.main = base.phase(steps=steps, length=128, batch=16)
    config.optimizer.learning_rate = 2e-3
    config.optimizer.beta2 = 0.99
    config.optimizer.epsilon = 1e-8
    config.optimizer.bias_correction = True
    config.optimizer.weight_decay = 0.1
    config.schedule.name = "cosine"
    config.schedule.warmup = 200

    # Steps between two lines of the log, two evaluations, and two checkpoints.
    config.log.every = 100
    config.evaluate.every = 500
    config.evaluate.rows = 1000
    config.checkpoint.every = 500
    return config
