"""BERT-base for Chinese, simplified and traditional, as published: the pieces are characters.

Every Chinese character is a word of its own; other scripts in the text are split into word pieces as in English. The
vocabulary (21,128 pieces) is the file that the original authors released with BERT-base, Chinese. Its published XNLI
accuracy for Chinese is 77.2 (test).

    bert-jax pretrain --config bert_chinese --workdir runs/bert_chinese --config.corpus.source='zhwiki/*.xz' \
        --config.corpus.format=wiki --config.tokenizer.path=bert_base_chinese_vocab.txt
"""

from bert_jax.configs import bert_base


def get_config():
    config = bert_base.get_config()
    config.store = "stores/bert_chinese"
    config.tokenizer.path = "bert_base_chinese_vocab.txt"
    config.tokenizer.size = 21128  # used by `plan` if that file is missing
    return config
