"""BERT-base on Chinese Wikipedia as TensorFlow Datasets has it, characters as pieces.

`bert_chinese` with its text: simplified and traditional as they come. The vocabulary is the published one, the file
bert_base_chinese_vocab.txt; with `--config.tokenizer.path=` one is trained, whose pieces are the characters that the
text has. docs/recipes/chinese.md has the commands in their order, the sizes to expect, and slices to train on.

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
    config.filter.document_characters = 50  # a character says more than a letter
    return config
