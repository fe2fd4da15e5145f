"""BERT-tiny (arXiv:1908.08962): 2 layers of width 128, 4.4M parameters with pooler; otherwise as BERT-base.

The authors report, on the GLUE test sets: SST-2 accuracy 83.2, MRPC F1 81.1, STS-B Spearman 73.6, RTE accuracy 57.2.

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
