"""BERT-tiny (arXiv:1908.08962): 2 layers of width 128, otherwise the recipe of BERT-base.

The smallest of the published sizes: on GLUE its authors report 83.2 on SST-2 and 81.1 F1 on MRPC.

    bert-jax pretrain --config bert_tiny --workdir runs/bert_tiny --config.corpus.source='text/*.txt'
"""

from bert_jax.configs import bert_base


def get_config():
    config = bert_base.get_config()
    config.store = "stores/bert_tiny"
    config.model.layers = 2
    config.model.width = 128
    config.model.heads = 2
    return config
