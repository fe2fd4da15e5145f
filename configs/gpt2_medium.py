"""GPT-2 medium (Radford et al. 2019): 24 layers of width 1,024, 355 million parameters.

The recipe is that of GPT-2 small with the rate of GPT-3's model of this size.

    bert-jax pretrain --config gpt2_medium --workdir runs/gpt2_medium --config.corpus.source='text/*.jsonl' \
        --config.corpus.format=jsonl
"""

from bert_jax.configs import gpt2_small


def get_config():
    config = gpt2_small.get_config()
    config.model.layers = 24
    config.model.width = 1024
    config.model.heads = 16
    config.optimizer.learning_rate = 3e-4
    return config
