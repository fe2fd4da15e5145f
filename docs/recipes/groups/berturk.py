"""BERTurk, uncased (github.com/stefan-it/turkish-bert): three million steps of 512 tokens from the first one on.

    bert-jax pretrain --config docs/recipes/groups/berturk.py --workdir runs/berturk

Lower-casing keeps the accents of ş, ç, ğ, ö and ü. Their five copies of each text with other masks are here other masks
in each epoch. By mistake, theirs stopped after two million. Not here: their ELECTRA, and the distilled model.
"""

from bert_jax.configs import base


def get_config():
    config = base.get_config()
    config.store = "stores/berturk"
    config.corpus.source = "text/*.txt"
    config.corpus.sentences = "lines"
    config.tokenizer.update(kind="wordpiece", size=32_000, lowercase=True, keep_accents=True)
    config.optimizer.learning_rate = 1e-4
    config.schedule.warmup = 10_000
    config.phases.main = base.phase(3_000_000, length=512, batch=128, max_predictions=75)
    config.checkpoint.keep_every = 100_000
    config.evaluate.every = 10_000
    return config
