"""BERT-large by LAMB (arXiv:1904.00962) in 8,601 steps: 65,536 rows of 128 tokens, then 32,768 rows of 512.

Each phase has its own rate, warm-up and decay, the square root of the steps that are left, as in NVIDIA's
DeepLearningExamples, which has the steps, too. It sees 512 million rows, twice as many as `bert_large`. The paper
reports 76 minutes on 1,024 TPUv3 chips, and SQuAD 1.1 F1 90.58 (dev). Here it has not been trained to its end.

    bert-jax pretrain --config bert_large_lamb --workdir runs/bert_large_lamb \
        --config.corpus.source='wiki/*.xz' --config.corpus.format=wiki \
        --config.tokenizer.path=bert_base_uncased_vocab.txt

The number of micro-batches is computed from `train.tokens_per_device`. Fewer devices want smaller batches: the rates of
the paper fall with the square root of the batch.
"""

from bert_jax.configs import base, bert_large


def get_config():
    config = bert_large.get_config()
    config.store = "stores/bert_large_lamb"
    base.use(config, optimizer="lamb")
    config.optimizer.learning_rate = 6e-3
    config.schedule.name = "root"
    config.schedule.warmup = 2001  # 28.43 % of the steps
    config.phases.short.update(steps=7_038, batch=65_536)
    config.phases.long.update(steps=1_563, batch=32_768)
    config.phases.long.update(schedule="root", learning_rate=4e-3, warmup=200)  # 12.8 %
    config.train.tokens_per_device = 32 * 128
    config.log.every = 10
    config.evaluate.every = 500
    config.checkpoint.every = 250
    config.checkpoint.keep_every = 1_000
    return config
