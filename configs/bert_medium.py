"""BERT-medium (arXiv:1908.08962): 8 layers of width 512, 41.4M parameters with pooler; otherwise the recipe of
BERT-base.

Its authors report, on the GLUE test sets: 89.6 on SST-2, 86.6 F1 on MRPC, 78.4 Spearman on STS-B, 62.2 on RTE.

    bert-jax pretrain --config bert_medium --workdir runs/bert_medium --config.corpus.source='text/*.txt'
"""

from bert_jax.configs import bert_base


def get_config():
    config = bert_base.get_config()
    config.store = "stores/bert_medium"
    config.model.layers = 8
    config.model.width = 512
    config.model.heads = 8
    return config
