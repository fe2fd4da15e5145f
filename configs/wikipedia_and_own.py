"""BERT-base on English Wikipedia and your own text together, yours read more often.

For text of a few hundred megabytes or more that Wikipedia alone would not prepare for, and that is too little to train
on alone. A source is read in an epoch as often as it is named, since copies are not left out; a random next sentence
comes from the same source. docs/recipes/wikipedia_and_own.md has the commands in their order.

    bert-jax prepare  --config wikipedia_and_own
    bert-jax pretrain --config wikipedia_and_own --workdir runs/wikipedia_and_own
"""

from bert_jax.configs import wikipedia


def get_config():
    config = wikipedia.get_config()
    config.store = "stores/wikipedia_and_own"
    config.corpus.source = "tfds:wikipedia/20230601.en,text,text,text,text"
    config.filter.duplicates = False  # they are the same text four times
    config.corpus.sentences = "rules"  # lines of yours are paragraphs, as Wikipedia's are
    return config
