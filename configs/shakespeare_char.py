"""Tiny Shakespeare by character: 4 layers of width 128, blocks of 64, minutes on two CPU cores.

    bert-jax pretrain --config shakespeare_char --workdir runs/shakespeare --config.corpus.source=input.txt

The text, 1.1 million characters, is input.txt of https://github.com/karpathy/char-rnn, data/tinyshakespeare. The shape,
the batch and the number of steps are those that nanoGPT names for CPUs, with a validation loss of 1.88 nats a
character. The last tenth of the text is held out, as there. The loss here is 1.743, 1.738 and 1.728 (three seeds), with
a higher rate and larger initial weights than nanoGPT's; with its rate of 1e-3 and weights of 0.02 it is 1.89.
"""

from bert_jax.configs import base


def get_config():
    config = base.get_config(model="gpt", objective="causal_lm", task="token_blocks")
    config.store = "stores/shakespeare_char"
    config.corpus.source = "input.txt"
    config.corpus.format = "files"
    config.corpus.sentences = "none"
    config.corpus.heldout = 0.1
    config.corpus.heldout_by = "end"
    config.tokenizer.kind = "bytes"
    config.tokenizer.lowercase = False
    config.model.layers = 4
    config.model.width = 128
    config.model.heads = 4
    config.model.max_length = 64
    config.model.dropout = 0.0
    config.model.attention_dropout = 0.0
    config.model.initializer = 0.04
    config.optimizer.learning_rate = 4e-3
    config.optimizer.beta2 = 0.99
    config.optimizer.epsilon = 1e-8
    config.optimizer.bias_correction = True
    config.optimizer.weight_decay = 0.1
    config.schedule.name = "cosine"
    config.schedule.warmup = 100
    config.phases.main = base.phase(steps=2000, length=64, batch=12)
    config.evaluate.every = 500
    config.checkpoint.every = 500
    return config
