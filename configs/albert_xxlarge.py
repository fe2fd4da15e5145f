"""ALBERT-xxlarge (arXiv:1909.11942): 12 layers of width 4,096 with the same weights, 222.6 million parameters.

The recipe is that of ALBERT-base.

    bert-jax pretrain --config albert_xxlarge --workdir runs/albert_xxlarge --config.corpus.source='wiki/*.xz' \
        --config.corpus.format=wiki
"""

from bert_jax.configs import albert_base


def get_config(version="v2"):
    config = albert_base.get_config(version)
    config.model.width = 4096
    config.model.heads = 64
    return config
