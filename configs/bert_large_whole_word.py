"""BERT-large with whole-word masking (released by the original authors in May 2019): words, not pieces.

All pieces of a word are masked together. The share of masked tokens and the data are those of BERT-large; the loss
is higher, as a masked piece is not given away by the others of its word. Its authors report SQuAD 1.1 F1 92.8,
exact match 86.7 (dev; 91.0 and 84.3 without), MNLI 87.1 (86.1 without).

    bert-jax pretrain --config bert_large_whole_word --workdir runs/bert_large_whole_word \
        --config.corpus.source='wiki/*.xz' --config.corpus.format=wiki
"""

from bert_jax.configs import bert_large


def get_config():
    config = bert_large.get_config()
    config.store = "stores/bert_large_whole_word"
    config.objective.masking = "whole_word"
    return config
