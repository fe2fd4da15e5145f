"""BERT-large, uncased, as published (arXiv:1810.04805): 24 layers of width 1,024, 335M parameters with pooler.

The recipe is that of BERT-base. The published run took four days on 64 TPU chips. The authors report SQuAD 1.1 F1 90.9
and exact match 84.4 (dev), and a perplexity of held-out masked words of 3.23 (1.17 nats) for 24 layers.

    bert-jax pretrain --config bert_large --workdir runs/bert_large --config.corpus.source='wiki/*.xz' \
        --config.corpus.format=wiki --config.tokenizer.path=bert_base_uncased_vocab.txt
"""

from bert_jax.configs import bert_base


def get_config():
    config = bert_base.get_config()
    config.store = "stores/bert_large"
    config.model.layers = 24
    config.model.width = 1024
    config.model.heads = 16
    return config
