"""BERT-medium (arXiv:1908.08962): 8 layers of width 512, 41.4M parameters with pooler; otherwise as BERT-base.

The authors report, on the GLUE test sets: SST-2 accuracy 89.6, MRPC F1 86.6, STS-B Spearman 78.4, RTE accuracy 62.2.

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
