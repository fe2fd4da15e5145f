"""RoBERTa-large (arXiv:1907.11692): 24 layers of width 1,024, 355 million parameters.

The recipe is that of the published model (table 9): 500,000 steps of 8,192 rows.

    bert-jax pretrain --config roberta_large --workdir runs/roberta_large --config.corpus.source='text/*.jsonl' \
        --config.corpus.format=jsonl
"""

from bert_jax.configs import roberta_base


def get_config():
    config = roberta_base.get_config()
    config.store = "stores/roberta_large"
    config.model.layers = 24
    config.model.width = 1024
    config.model.heads = 16
    config.optimizer.learning_rate = 4e-4
    config.schedule.warmup = 30_000
    config.schedule.decay = 470_000
    config.phases.main.steps = 500_000
    config.phases.main.batch = 8192
    return config
