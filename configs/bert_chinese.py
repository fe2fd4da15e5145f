"""BERT-base for Chinese, as published: characters are pieces (the released vocabulary of 21,128), simplified and
traditional.

Every ideograph is a word of its own, so a sentence is a row of characters; other scripts in the text are cut into
pieces as in English. The vocabulary is the file that the original authors released with BERT-base, Chinese. XNLI,
Chinese: 77.2 (test).

    bert-jax pretrain --config bert_chinese --workdir runs/bert_chinese --config.corpus.source='zhwiki/*.xz' \
        --config.corpus.format=wiki --config.tokenizer.path=bert_base_chinese_vocab.txt
"""

from bert_jax.configs import bert_base


def get_config():
    config = bert_base.get_config()
    config.store = "stores/bert_chinese"
    config.tokenizer.path = "bert_base_chinese_vocab.txt"
    config.tokenizer.size = 21128  # what `plan` takes where that file is not
    return config
