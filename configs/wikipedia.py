"""BERT-base on English Wikipedia as TensorFlow Datasets has it: 6.7 million articles, downloaded by `prepare`.

The published recipe on the half of its corpus that can still be had; the other half were books. As there, headings and
lists are left out: lines that do not end a sentence. The vocabulary is trained on a sample. docs/recipes/wikipedia.md
has the commands in their order, the sizes to expect, and slices to train on.

    bert-jax prepare  --config wikipedia
    bert-jax pretrain --config wikipedia --workdir runs/wikipedia
"""

from bert_jax.configs import bert_base


def get_config():
    config = bert_base.get_config()
    config.store = "stores/wikipedia"
    config.corpus.source = "tfds:wikipedia/20230601.en"
    config.corpus.heldout = 0.001  # some thousand articles
    config.filter.line_stops = True
    config.filter.document_characters = 200  # redirects, and articles of a sentence or two
    return config
