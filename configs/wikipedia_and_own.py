"""BERT-base on English Wikipedia together with your own text, which is read four times as often.

It suits a domain that Wikipedia does not cover, with a few hundred megabytes of text or more, but too little to train
on alone. A random next sentence comes from the same source. docs/recipes/wikipedia_and_own.md lists the commands in
order.

    bert-jax prepare  --config wikipedia_and_own
    bert-jax pretrain --config wikipedia_and_own --workdir runs/wikipedia_and_own
"""

from bert_jax.configs import wikipedia


def get_config():
    config = wikipedia.get_config()
    config.store = "stores/wikipedia_and_own"
    config.corpus.source = "wikipedia=tfds:wikipedia/20230601.en,mine=text"
    config.task.mixture = "mine:4"
    config.corpus.sentences = "rules"  # lines are paragraphs, in your text as in Wikipedia
    return config
