"""A small ModernBERT, 6 layers of width 384: one GPU, or a first try of modern_base.

    bert-jax pretrain --config modern_small --workdir runs/modern_small \
        --config.corpus.source='text/*.jsonl' --config.corpus.format=jsonl

It trains on 5 billion tokens; `modern_small:1` on one.
"""

from bert_jax.configs import modern_base


def get_config(billions=5):
    config = modern_base.get_config(billions)
    config.store = "stores/modern_small"
    config.model.update(layers=6, width=384, heads=6, feed_forward=576)
    return config
