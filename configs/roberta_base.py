"""RoBERTa-base (arXiv:1907.11692): 12 layers of width 768, 125 million parameters, rows of 512 tokens.

    bert-jax pretrain --config roberta_base --workdir runs/roberta_base --config.corpus.source='text/*.jsonl' \
        --config.corpus.format=jsonl

Rows are whole sentences across documents, with new masks in each epoch, and there is no pair loss. The recipe is that
of fairseq's examples/roberta/README.pretraining.md: 125,000 steps of 2,048 rows. The published model has 500,000 steps
of 8,192 rows, a rate of 6e-4, and a warm-up of 24,000 steps (table 9). Weight decay leaves out biases and norms, which
fairseq decays, too. With `--config.tokenizer.path=DIR`, a directory with RoBERTa's vocab.json and merges.txt, the
pieces are the published ones; otherwise 50,265 are trained on the text.
"""

from bert_jax.configs import base


def get_config():
    config = base.get_config(model="roberta", task="full_sentences")
    config.store = "stores/roberta_base"
    config.tokenizer.kind = "byte_bpe"
    config.tokenizer.size = 50_265
    config.tokenizer.lowercase = False
    config.optimizer.learning_rate = 5e-4
    config.optimizer.beta2 = 0.98
    config.optimizer.bias_correction = True
    config.optimizer.clip = 0.0
    config.schedule.warmup = 10_000
    config.schedule.decay = 115_000
    config.phases.main = base.phase(steps=125_000, length=512, batch=2048, max_predictions=77)
    config.train.tokens_per_device = 16_384
    config.evaluate.every = 2_000
    config.checkpoint.every = 1_000
    return config
