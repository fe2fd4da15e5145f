"""ModernBERT-large (arXiv:2412.13663): 28 layers of width 1,024, 395 million parameters.

    bert-jax pretrain --config modern_large --workdir runs/modern_large \
        --config.corpus.source='text/*.jsonl' --config.corpus.format=jsonl
"""

from bert_jax.configs import modern_base


def get_config():
    config = modern_base.get_config()
    config.store = "stores/modern_large"
    config.model.update(layers=28, width=1024, heads=16, feed_forward=2624)
    return config
