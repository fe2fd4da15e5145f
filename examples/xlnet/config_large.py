"""XLNet-large, cased, as published (arXiv:1906.08237, table 8): 24 layers of width 1024, 500,000 steps of 8,192 rows.

The authors' text is BooksCorpus, Wikipedia, Giga5, ClueWeb and Common Crawl, 32.9 billion pieces. Their rows have a
memory of 384 states of the row before, which is in the batch before: here there is none.

    bert-jax pretrain --config examples/xlnet/config_large.py --workdir runs/xlnet_large \
        --config.corpus.source='wiki/*.xz' --config.corpus.format=wiki
"""

from bert_jax.configs import base


def get_config():
    names = {"model": "xlnet.model", "objective": "xlnet.objective", "task": "xlnet.task"}
    config = base.get_config(**names)
    config.store = "stores/xlnet_large"
    config.tokenizer.kind = "unigram"
    config.tokenizer.size = 32_000
    config.tokenizer.lowercase = False

    config.model.layers = 24
    config.model.width = 1024
    config.model.heads = 16

    config.phases.main = base.phase(steps=500_000, length=512, batch=8192, max_predictions=85)
    config.optimizer.learning_rate = 4e-4
    config.schedule.warmup = 40_000

    config.log.every = 100
    config.evaluate.every = 10_000
    config.checkpoint.every = 5_000
    config.checkpoint.keep_every = 100_000
    return config
