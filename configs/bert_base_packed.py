"""BERT-base with packing: several sentence pairs share a row, so there is hardly any padding.

A row of bert_base holds one pair, and most documents end before the row is full. Here each pair of a row has its own
positions, attention, masks and label, so its loss is the same as in a row of its own. On Simple Wikipedia (vocabulary
of 16k pieces), rows of 128 tokens are 98 % full instead of 80 %, with 1.2 pairs on average; rows of 512 are 99 % full
instead of 38 %, with 2.6 pairs. A step takes as long as in bert_base, with 1.2 or 2.6 times as many pairs. To see as
many pairs per step as bert_base, divide `batch` by that number. Held-out rows are not packed, so the held-out losses
are comparable with those of bert_base.

    bert-jax pretrain --config bert_base_packed --workdir runs/bert_base_packed --config.corpus.source='wiki/*.xz' \
        --config.corpus.format=wiki --config.tokenizer.path=bert_base_uncased_vocab.txt
"""

from bert_jax.configs import bert_base


def get_config():
    config = bert_base.get_config()  # with the same store: rows are packed when they are read
    # A few more predictions than for a single pair, because the number is rounded for each pair.
    config.phases.short.update(max_packed=4, max_predictions=21)
    config.phases.long.update(max_packed=8, max_predictions=80)
    return config
