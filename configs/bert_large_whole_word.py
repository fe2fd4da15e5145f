"""BERT-large with whole-word masking, which the original authors released in May 2019.

All pieces of a word are masked together. Data and share of masked tokens are those of BERT-large. The loss is higher,
because the other pieces of a word no longer give a masked piece away. The authors report (in parentheses BERT-large
without it) SQuAD 1.1 F1 92.8 (91.0) and exact match 86.7 (84.3), dev, and MNLI accuracy 87.1 (86.1).

    bert-jax pretrain --config bert_large_whole_word --workdir runs/bert_large_whole_word \
        --config.corpus.source='wiki/*.xz' --config.corpus.format=wiki
"""

from bert_jax.configs import bert_large


def get_config():
    config = bert_large.get_config()
    config.store = "stores/bert_large_whole_word"
    config.task.masking = "whole_word"
    return config
