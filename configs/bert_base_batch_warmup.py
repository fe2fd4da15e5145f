"""BERT-base in large batches, at first in smaller ones: while gradients are large, small batches learn as much a step.

The rows of `bert_base`, 256 million, in an eighth of its steps: batch 2,048 at rate 7e-4 as in table 3 of RoBERTa
(arXiv:1907.11692), reached in four phases as ModernBERT does (arXiv:2412.13663). Each phase doubles the batch. The
rate's schedule is in steps and its warm-up spans the small batches, so that both grow together. Every phase draws rows
of its own from the whole corpus: other pairs, masks and order than the phases before it. Not trained here to its end.

Micro-batches follow from the rows that fit a device: the same command on 8 devices or 64.

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
    config.train.rows_per_device = 32
    config.evaluate.every = 2_000
    config.checkpoint.every = 1_000
    config.checkpoint.keep_every = 20_000
    return config
