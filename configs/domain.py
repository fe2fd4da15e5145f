"""A published BERT-base that goes on with the text of a domain: law, medicine, a company's letters.

`import` makes a run of the published weights; its vocabulary stays, and gets the words that you name. A tenth of the
steps and half of the peak rate of BERT-base: what is there is to be moved, not learnt again. Not trained here to its
end. docs/recipes/domain.md has the commands in their order, and when to train from nothing instead.

    bert-jax import   --source bert-base-uncased --workdir runs/domain --config domain \
        --config.corpus.source='text/*.txt'
    bert-jax pretrain --config runs/domain/config.json --workdir runs/domain
"""

from bert_jax.configs import bert_base


def get_config():
    config = bert_base.get_config()
    config.store = "stores/domain"
    config.corpus.source = "text"
    config.corpus.sentences = "rules"  # lines are paragraphs
    config.optimizer.learning_rate = 5e-5
    config.schedule.warmup = 5_000
    config.phases.short.steps = 80_000
    config.phases.long.steps = 20_000
    config.evaluate.every = 2_000
    config.checkpoint.every = 2_000
    config.checkpoint.keep_every = 20_000
    return config
