"""ALBERT-large (arXiv:1909.11942): 24 layers of width 1,024 with the same weights, 17.7 million parameters.

The recipe is that of ALBERT-base.

    bert-jax pretrain --config albert_large --workdir runs/albert_large --config.corpus.source='wiki/*.xz' \
        --config.corpus.format=wiki
"""

from bert_jax.configs import albert_base


def get_config(version="v2"):
    config = albert_base.get_config(version)
    config.model.layers = 24
    config.model.width = 1024
    config.model.heads = 16
    return config
