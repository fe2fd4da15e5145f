"""ModernBERT-large (arXiv:2412.13663): 28 layers of width 1,024, 395 million parameters.

    bert-jax pretrain --config modern_large:100 --workdir runs/modern_large \
        --config.corpus.source='text/*.jsonl' --config.corpus.format=jsonl

The number is the billions of tokens, as in modern_base.
"""

from bert_jax.configs import modern_base


def get_config(billions=modern_base.PAPER):
    config = modern_base.get_config()
    config.store = "stores/modern_large"
    config.model.update(layers=28, width=1024, heads=16, feed_forward=2624)
    config.optimizer.learning_rate = 5e-4
    modern_base.set_phases(config, billions, rows=448, sizes=11, growth=10, warmup=2)
    return config
