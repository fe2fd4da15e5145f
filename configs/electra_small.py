"""ELECTRA-small (arXiv:2003.10555): a discriminator of 12 layers of width 256, 13.5 million parameters.

    bert-jax pretrain --config electra_small --workdir runs/electra_small --config.corpus.source='wiki/*.xz' \
        --config.corpus.format=wiki

Steps, rates, masks and sizes are those of the paper's table 6. The generator has a quarter of the width, as in the
paper; that of the published small model has all of it. Rows have one segment; those of the authors' code are cut into
two at random, and no loss tells them apart. Masked positions differ from each other; theirs are drawn with replacement.
In warm-up they multiply the rate of the decay by its share; here the rate is up to 1 % higher at its end.
"""

from bert_jax.configs import base


def get_config():
    config = base.get_config(model="electra", objective="replaced_tokens")
    config.store = "stores/electra"
    config.tokenizer.size = 30_522
    config.model.width = 256
    config.model.embedding_width = 128
    config.model.heads = 4
    config.task.pair_task = "none"
    config.task.mask_share = 0.85
    config.task.random_share = 0.0
    config.optimizer.learning_rate = 5e-4
    config.schedule.warmup = 10_000
    config.phases.main = base.phase(steps=1_000_000, length=128, batch=128, max_predictions=19)
    config.train.tokens_per_device = 16_384
    config.evaluate.every = 10_000
    config.checkpoint.every = 1_000
    config.checkpoint.keep_every = 100_000
    return config
