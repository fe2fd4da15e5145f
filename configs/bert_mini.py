"""BERT-mini (arXiv:1908.08962): 4 layers of width 256, 11.2M parameters; otherwise BERT-base's recipe.

Its authors report, on the GLUE test sets: 85.9 on SST-2, 81.1 F1 on MRPC, 73.3 Spearman on STS-B, 57.9 on RTE.

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
