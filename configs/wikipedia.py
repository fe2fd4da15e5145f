"""BERT-base on English Wikipedia from TensorFlow Datasets: 6.7 million articles, which `prepare` downloads.

This is the published recipe without the books, which are no longer available. As in the paper, headings and lists are
dropped: here, all lines that do not end with a sentence's punctuation. The vocabulary is trained on a sample of the
text. docs/recipes/wikipedia.md lists the commands in order, the sizes to expect, and slices to train on.

    bert-jax prepare  --config wikipedia
    bert-jax pretrain --config wikipedia --workdir runs/wikipedia
"""

from bert_jax.configs import bert_base


def get_config():
    config = bert_base.get_config()
    config.store = "stores/wikipedia"
    config.corpus.source = "tfds:wikipedia/20230601.en"
    config.corpus.heldout = 0.001  # several thousand articles
    config.filter.line_stops = True
    config.filter.document_characters = 200  # drops redirects and articles of a sentence or two
    return config
