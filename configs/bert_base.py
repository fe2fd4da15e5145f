"""BERT-base, uncased, as published (arXiv:1810.04805): 12 layers of width 768, a million steps of 256 rows.

Nine tenths of the steps have length 128, the others 512. The published run took four days on 16 TPU chips. Expect after
the million steps a held-out masked-LM loss of about 1.4 nats, a masked-LM accuracy of 0.73 at length 128 and 0.75 at
512, and a next-sentence accuracy of 0.98.

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
