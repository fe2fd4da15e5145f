"""GPT-2 XL (Radford et al. 2019): 48 layers of width 1,600, 1.6 billion parameters.

The recipe is that of GPT-2 small with the rate of GPT-3's model of this size.

    bert-jax pretrain --config gpt2_xl --workdir runs/gpt2_xl --config.corpus.source='text/*.jsonl' \
        --config.corpus.format=jsonl
"""

from bert_jax.configs import gpt2_small


def get_config():
    config = gpt2_small.get_config()
    config.model.layers = 48
    config.model.width = 1600
    config.model.heads = 25
    config.optimizer.learning_rate = 2e-4
    return config
