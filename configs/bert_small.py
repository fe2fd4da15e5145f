"""BERT-small (arXiv:1908.08962): 4 layers of width 512, 28.8M parameters with pooler; otherwise as BERT-base.

The authors report, on the GLUE test sets: SST-2 accuracy 89.7, MRPC F1 83.4, STS-B Spearman 77.0, RTE accuracy 61.8.

    bert-jax pretrain --config bert_small --workdir runs/bert_small --config.corpus.source='text/*.txt'
"""

from bert_jax.configs import bert_base


def get_config():
    config = bert_base.get_config()
    config.store = "stores/bert_small"
    config.model.layers = 4
    config.model.width = 512
    config.model.heads = 8
    return config
