"""BERT-base with batch size warm-up: large batches, preceded by smaller ones, which learn as much per step at first.

It sees as many rows as `bert_base`, 256 million, in an eighth of the steps. The batch of 2,048 and the learning rate of
7e-4 are those of RoBERTa (arXiv:1907.11692, table 3). The batch doubles over the first four phases, as in ModernBERT
(arXiv:2412.13663), while the learning rate warms up. Each of them goes on in the text where the one before stopped;
the last one, of other rows, begins it anew. This config has not been trained to its end here.

The number of micro-batches is computed from `train.tokens_per_device`: the same command works on 8 devices or 64.

    bert-jax pretrain --config bert_base_batch_warmup --workdir runs/bert_base_batch_warmup \
        --config.corpus.source='wiki/*.xz' --config.corpus.format=wiki \
        --config.tokenizer.path=bert_base_uncased_vocab.txt
"""

from bert_jax.configs import base, bert_base


def get_config():
    config = bert_base.get_config()
    config.store = "stores/bert_base_batch_warmup"
    config.phase_order = ("small", "medium", "large", "short", "long")
    short = dict(length=128, max_predictions=20)
    config.phases = base.ConfigDict(
        dict(
            small=base.phase(steps=4_000, batch=256, **short),
            medium=base.phase(steps=4_000, batch=512, **short),
            large=base.phase(steps=4_000, batch=1024, **short),
            short=base.phase(steps=109_000, batch=2048, **short),
            long=base.phase(steps=12_500, length=512, batch=2048, max_predictions=77),
        )
    )
    config.optimizer.learning_rate = 7e-4
    config.schedule.warmup = 12_000
    config.train.tokens_per_device = 32 * 128
    config.evaluate.every = 2_000
    config.checkpoint.every = 1_000
    config.checkpoint.keep_every = 20_000
    return config
