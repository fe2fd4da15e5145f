"""GPT-2 large (Radford et al. 2019): 36 layers of width 1,280, 774 million parameters.

The recipe is that of GPT-2 small with the rate of GPT-3's model of this size.

    bert-jax pretrain --config gpt2_large --workdir runs/gpt2_large --config.corpus.source='text/*.jsonl' \
        --config.corpus.format=jsonl
"""

from bert_jax.configs import gpt2_small


def get_config():
    config = gpt2_small.get_config()
    config.model.layers = 36
    config.model.width = 1280
    config.model.heads = 20
    config.optimizer.learning_rate = 2.5e-4
    return config
