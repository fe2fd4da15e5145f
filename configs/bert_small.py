"""BERT-small (arXiv:1908.08962): 4 layers of width 512, 28.8M parameters; otherwise BERT-base's recipe.

Its authors report, on the GLUE test sets: 89.7 on SST-2, 83.4 F1 on MRPC, 77.0 Spearman on STS-B, 61.8 on RTE.

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
