"""A small GPT-2 on demo's corpus, the documentation inside every Python installation: minutes on two CPU cores.

bert-jax pretrain --config gpt_demo --workdir runs/gpt_demo
bert-jax predict  --model runs/gpt_demo "Returns the" --tokens 100 --temperature 0.8

The held-out loss is 3.31 nats a token at the end (one run, Python 3.11's documentation), 3.3 under that of the
frequencies of tokens, after three minutes on two cores beside other work.
"""

from bert_jax.configs import base


def get_config():
    config = base.get_config(model="gpt", objective="causal_lm", task="token_blocks")
    config.store = "stores/gpt_demo"
    config.corpus.sentences = "none"
    config.tokenizer.kind = "byte_bpe"
    config.tokenizer.size = 4096
    config.tokenizer.lowercase = False
    config.model.layers = 2
    config.model.width = 128
    config.model.heads = 4
    config.model.max_length = 128
    config.model.dropout = 0.0
    config.model.attention_dropout = 0.0
    # 0.02 suits a width of 768; here attention would stay uniform for long.
    config.model.initializer = 0.04
    config.phases.main = base.phase(steps=2000, length=128, batch=24)
    config.optimizer.learning_rate = 4e-3
    config.optimizer.beta2 = 0.99
    config.optimizer.bias_correction = True
    config.optimizer.weight_decay = 0.1
    config.schedule.name = "cosine"
    config.schedule.warmup = 200
    config.log.every = 100
    config.evaluate.every = 1000
    config.evaluate.rows = 512
    config.checkpoint.every = 1000
    return config
