"""BERT-base on Chinese Wikipedia from TensorFlow Datasets, with characters as pieces.

This is `bert_chinese` with a corpus, simplified and traditional mixed. The vocabulary is the published one, the file
bert_base_chinese_vocab.txt. With `--config.tokenizer.path=` a vocabulary is trained instead, on the characters of the
text. docs/recipes/chinese.md lists the commands in order, the sizes to expect, and slices to train on.

    bert-jax prepare  --config wikipedia_chinese
    bert-jax pretrain --config wikipedia_chinese --workdir runs/wikipedia_chinese
"""

from bert_jax.configs import bert_chinese


def get_config():
    config = bert_chinese.get_config()
    config.store = "stores/wikipedia_chinese"
    config.corpus.source = "tfds:wikipedia/20230601.zh"
    config.corpus.heldout = 0.005
    config.filter.line_stops = True
    config.filter.document_characters = 50  # a Chinese character carries more than a letter
    return config
