"""demo's corpus and time with ModernBERT: minutes on two CPU cores.

bert-jax pretrain --config modern_demo --workdir runs/modern_demo
"""

from bert_jax.configs import base, demo


def get_config():
    config = demo.get_config()
    base.use(config, model="modernbert", task="full_sentences")
    config.objective.pair_task = "none"
    config.model.update(layers=2, width=128, heads=2, feed_forward=192, max_length=64, window=32)
    config.model.dropout = 0.0
    config.model.initializer = 0.06
    config.phases.main.max_predictions = 20
    config.task.mask_rate = 0.3
    return config
