"""A small Transformer-XL on the documentation inside every Python installation: minutes on two CPU cores.

    bert-jax pretrain --config examples/xlnet/config_transformer_xl.py --workdir runs/transformer_xl

The same network without a memory, and as one that attends to the whole row, for a comparison:

    bert-jax pretrain --config examples/xlnet/config_transformer_xl.py:segment --workdir runs/one_segment
    bert-jax pretrain --config examples/xlnet/config_transformer_xl.py:row --workdir runs/whole_row

Rows are eight segments of 64 tokens.
"""

from bert_jax.configs import base

# Tokens of a segment, and of its memory.
KINDS = {"memory": (64, 64), "segment": (64, 0), "row": (512, 0)}


def get_config(kind="memory"):
    names = {"model": "xlnet.transformer_xl", "objective": "causal_lm", "task": "token_blocks"}
    config = base.get_config(**names)
    config.store = "stores/transformer_xl"
    config.corpus.sentences = "none"
    config.tokenizer.kind = "byte_bpe"
    config.tokenizer.size = 4096
    config.tokenizer.lowercase = False

    config.model.layers = 2
    config.model.width = 128
    config.model.heads = 4
    config.model.max_length = 512
    config.model.segment, config.model.memory = KINDS[kind]
    config.model.dropout = 0.0
    # 0.02 suits a width of 512 and more; here attention would stay uniform for long.
    config.model.initializer = 0.04

    config.phases.main = base.phase(steps=1000, length=512, batch=8)
    config.optimizer.learning_rate = 4e-3
    config.optimizer.beta2 = 0.99
    config.optimizer.bias_correction = True
    config.optimizer.weight_decay = 0.1
    config.schedule.name = "cosine"
    config.schedule.warmup = 100

    # Steps between two lines of the log, two evaluations, and two checkpoints.
    config.log.every = 50
    config.evaluate.every = 500
    config.evaluate.rows = 128
    config.checkpoint.every = 500
    return config
