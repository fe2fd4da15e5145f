"""BERT-mini (arXiv:1908.08962): 4 layers of width 256, 11.2M parameters with pooler; otherwise as BERT-base.

The authors report, on the GLUE test sets: SST-2 accuracy 85.9, MRPC F1 81.1, STS-B Spearman 73.3, RTE accuracy 57.9.

    bert-jax pretrain --config bert_mini --workdir runs/bert_mini --config.corpus.source='text/*.txt'
"""

from bert_jax.configs import bert_base


def get_config():
    config = bert_base.get_config()
    config.store = "stores/bert_mini"
    config.model.layers = 4
    config.model.width = 256
    config.model.heads = 4
    return config
