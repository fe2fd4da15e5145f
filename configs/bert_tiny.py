"""BERT-tiny (arXiv:1908.08962): 2 layers of width 128, 4.4M parameters; otherwise BERT-base's recipe.

Its authors report, on the GLUE test sets: 83.2 on SST-2, 81.1 F1 on MRPC, 73.6 Spearman on STS-B, 57.2 on RTE.

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
