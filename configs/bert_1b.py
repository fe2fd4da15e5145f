"""A BERT of 1.3B parameters: 24 layers of width 2,048 with 32 heads, the size of the second of arXiv:1909.08053.

Its state, parameters and two moments in float32, has 15.4 GB: 1.9 GB a device here, where eight devices hold one copy.
Nobody has trained this file yet. That paper moved the layer norms to train models beyond BERT-large; here they are
where BERT has them.

    bert-jax pretrain --config bert_1b --workdir runs/bert_1b --config.corpus.source='wiki/*.xz' \
        --config.corpus.format=wiki --config.tokenizer.path=bert_base_uncased_vocab.txt
"""

from bert_jax.configs import bert_large


def get_config():
    config = bert_large.get_config()
    config.store = "stores/bert_1b"
    config.model.width = 2048
    config.model.heads = 32
    config.mesh.fsdp = 8
    return config
