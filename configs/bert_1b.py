"""BERT with 1.3B parameters: 24 layers of width 2,048 with 32 heads, the second size of Megatron-LM (arXiv:1909.08053).

Its parameters and two float32 moments take 15.4 GB, or 1.9 GB per device split over eight devices (mesh.fsdp). This
config has not been trained yet. Megatron-LM moved the layer norms to train models larger than BERT-large; this config
keeps BERT's post-norm layers.

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
