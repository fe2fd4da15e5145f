"""BERT-base with several pairs in a row: hardly any padding, and every pair has the loss it has in a row of its own.

A row of bert_base holds one pair, and most documents end before it is full. Here pairs share rows, each with positions,
attention, masks and a label of its own. On Simple Wikipedia (16k pieces) rows of 128 tokens are 98 % full instead of
80 % and hold 1.2 pairs, rows of 512 are 99 % full instead of 38 % and hold 2.6. A step takes as long, and sees as many
times more pairs; to see as many a step as bert_base, divide `batch` by that number. Held-out rows are not packed, so
their losses compare with those of bert_base.

    bert-jax pretrain --config bert_base_packed --workdir runs/bert_base_packed --config.corpus.source='wiki/*.xz' \
        --config.corpus.format=wiki --config.tokenizer.path=bert_base_uncased_vocab.txt
"""

from bert_jax.configs import bert_base


def get_config():
    config = bert_base.get_config()  # and its store: packing is decided when rows are read
    # A few more predictions than a single pair has, because the number of each pair is rounded.
    config.phases.short.update(max_packed=4, max_predictions=21)
    config.phases.long.update(max_packed=8, max_predictions=80)
    return config
