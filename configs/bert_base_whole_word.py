"""BERT-base with whole-word masking (released by the original authors in May 2019): words, not pieces.

All pieces of a word are masked together. The share of masked tokens and the data are those of BERT-base; the loss
is higher, as a masked piece is not given away by the others of its word. No numbers were published for this size.

    bert-jax pretrain --config bert_base_whole_word --workdir runs/bert_base_whole_word \
        --config.corpus.source='wiki/*.xz' --config.corpus.format=wiki
"""

from bert_jax.configs import bert_base


def get_config():
    config = bert_base.get_config()
    config.store = "stores/bert_base_whole_word"
    config.objective.masking = "whole_word"
    return config
