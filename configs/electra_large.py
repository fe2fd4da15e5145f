"""ELECTRA-large (arXiv:2003.10555): a discriminator of 24 layers of width 1,024, 334 million parameters.

    bert-jax pretrain --config electra_large --workdir runs/electra_large --config.corpus.source='wiki/*.xz' \
        --config.corpus.format=wiki

The recipe is that of ELECTRA-base with larger batches, a generator of a quarter of the width, and a quarter of the
tokens masked. The best published model was trained for 1,750,000 steps.
"""

from bert_jax.configs import base, electra_base


def get_config():
    config = electra_base.get_config()
    config.model.layers = 24
    config.model.width = 1024
    config.model.heads = 16
    config.objective.generator = 4
    config.task.mask_rate = 0.25
    config.phases.main = base.phase(steps=400_000, length=512, batch=2048, max_predictions=130)
    return config
