"""ELECTRA-base (arXiv:2003.10555): a discriminator of 12 layers of width 768, 109 million parameters.

    bert-jax pretrain --config electra_base --workdir runs/electra_base --config.corpus.source='wiki/*.xz' \
        --config.corpus.format=wiki

The recipe is that of ELECTRA-small with longer rows, a lower rate, and a generator of a third of the width.
"""

from bert_jax.configs import base, electra_small


def get_config():
    config = electra_small.get_config()
    config.model.width = 768
    config.model.embedding_width = 0
    config.model.heads = 12
    config.objective.generator = 3
    config.optimizer.learning_rate = 2e-4
    config.phases.main = base.phase(steps=766_000, length=512, batch=256, max_predictions=79)
    return config
