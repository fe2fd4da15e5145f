"""ALBERT-base (arXiv:1909.11942): 12 layers of width 768 with the same weights, 11.7 million parameters.

    bert-jax pretrain --config albert_base --workdir runs/albert --config.corpus.source='wiki/*.xz' \
        --config.corpus.format=wiki

`albert_base:v1` has dropout, as the first published models; the second ones have none. Rows have 512 tokens of two
consecutive segments, in order or swapped. One to three words are masked at once. The paper trains for 125,000 steps of
4,096 rows by LAMB; version 2 of this model was trained for 10 million steps, that of the larger ones for 3 million. The
authors' command predicts at most 20 tokens of a row; here 15 % are predicted. The 30,000 pieces are trained on the
text; for those of a published model, set --config.tokenizer.path to its tokenizer.json.
"""

from bert_jax.configs import base

DROPOUT = {"v1": 0.1, "v2": 0.0}


def get_config(version="v2"):
    if version not in DROPOUT:
        raise ValueError(f"no version {version!r}; expected {' or '.join(DROPOUT)}")
    config = base.get_config(model="albert", optimizer="lamb")
    config.store = "stores/albert"
    config.tokenizer.kind = "unigram"
    config.tokenizer.size = 30_000
    config.model.dropout = DROPOUT[version]
    config.model.attention_dropout = DROPOUT[version]
    config.task.pair_task = "sop"
    config.task.masking = "ngram"
    config.optimizer.learning_rate = 0.00176
    config.schedule.warmup = 3_125
    config.phases.main = base.phase(steps=125_000, length=512, batch=4096, max_predictions=77)
    config.train.tokens_per_device = 16_384
    config.evaluate.every = 2_500
    config.checkpoint.every = 1_000
    config.checkpoint.keep_every = 25_000
    return config
