"""BERT-base, uncased, as published (arXiv:1810.04805): 12 layers of width 768, a million steps of 256 rows.

Nine tenths of the steps at length 128, the rest at 512. The published runs took four days on 16 TPU chips; held-out
masked-LM loss about 1.4 nats after the million steps, accuracy 0.73 at 128 and 0.75 at 512, next sentence 0.98.

    bert-jax pretrain --config bert_base --workdir runs/bert_base --config.corpus.source='wiki/*.xz' \
        --config.corpus.format=wiki --config.tokenizer.path=bert_base_uncased_vocab.txt
"""

from bert_jax.configs import base


def get_config():
    config = base.get_config()
    config.store = "stores/bert_base"
    config.phase_order = ("short", "long")
    config.phases = base.ConfigDict(
        dict(
            short=base.phase(steps=900_000, length=128, batch=256, max_predictions=20),
            long=base.phase(steps=100_000, length=512, batch=256, max_predictions=77),
        )
    )
    config.evaluate.every = 10_000
    config.checkpoint.every = 5_000
    config.checkpoint.keep_every = 100_000
    return config
