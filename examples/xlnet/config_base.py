"""XLNet-base, cased: 12 layers of width 768 as published (arXiv:1906.08237), and the schedule of the large one.

    bert-jax pretrain --config examples/xlnet/config_base.py --workdir runs/xlnet_base \
        --config.corpus.source='wiki/*.xz' --config.corpus.format=wiki
"""

from xlnet import config_large


def get_config():
    config = config_large.get_config()
    config.store = "stores/xlnet_base"
    config.model.layers = 12
    config.model.width = 768
    config.model.heads = 12
    return config
