"""BERT-base with whole-word masking, which the original authors released in May 2019.

All pieces of a word are masked together. Data and share of masked tokens are those of BERT-base. The loss is higher,
because the other pieces of a word no longer give a masked piece away. No numbers were published for this size.

    bert-jax pretrain --config bert_base_whole_word --workdir runs/bert_base_whole_word \
        --config.corpus.source='wiki/*.xz' --config.corpus.format=wiki
"""

from bert_jax.configs import bert_base


def get_config():
    config = bert_base.get_config()
    config.store = "stores/bert_base_whole_word"
    config.task.masking = "whole_word"
    return config
