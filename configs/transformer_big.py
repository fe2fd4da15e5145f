"""The big Transformer of arXiv:1706.03762: 6 + 6 layers of width 1024, 214M parameters; see transformer_base.

bert-jax pretrain --config transformer_big --config.task.data=DIR --config.task.text=en,de --workdir runs/en_de

The paper reports 28.4 BLEU on WMT 2014 English-German after 300,000 steps.
"""

from bert_jax.configs import transformer_base


def get_config():
    config = transformer_base.get_config()
    config.model.width = 1024
    config.model.heads = 16
    config.model.feed_forward = 4096
    config.model.dropout = 0.3
    config.phases.main.steps = 300_000
    # About ten minutes of the paper's machine.
    config.checkpoint.every = 600
    config.checkpoint.keep = 20
    config.checkpoint.average = 20
    return config
