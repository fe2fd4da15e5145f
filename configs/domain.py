"""Continued pretraining of a published BERT-base on the text of a domain: law, medicine, a company's letters.

`import` turns the published weights into a run, with their vocabulary and the words that you add to it. The config has
a tenth of the steps and half of the peak learning rate of BERT-base: the model is adapted, not trained anew. It has not
been trained to its end here. docs/recipes/domain.md lists the commands in order, and says when to train from scratch
instead.

    bert-jax import   --source bert-base-uncased --workdir runs/domain --config domain \
        --config.corpus.source='text/*.txt'
    bert-jax pretrain --config runs/domain/config.json --workdir runs/domain
"""

from bert_jax.configs import bert_base


def get_config():
    config = bert_base.get_config()
    config.store = "stores/domain"
    config.corpus.source = "text"
    config.corpus.sentences = "rules"  # lines are paragraphs; or "wrapped"
    config.optimizer.learning_rate = 5e-5
    config.schedule.warmup = 5_000
    config.phases.short.steps = 80_000
    config.phases.long.steps = 20_000
    config.evaluate.every = 2_000
    config.checkpoint.every = 2_000
    config.checkpoint.keep_every = 20_000
    return config
