"""GPT (Radford et al. 2018): 12 post-norm layers of width 768, 117 million parameters, rows of 512 tokens.

    bert-jax pretrain --config gpt --workdir runs/gpt --config.corpus.source='books/*.txt' --config.corpus.format=files

The recipe is the paper's: batches of 64 rows, a rate of 2.5e-4 with a warm-up of 2,000 steps and a cosine to 0, dropout
of 0.1. The paper has 100 epochs of BooksCorpus, three million steps; here they are a million. With
`--config.tokenizer.path=DIR`, a directory with GPT's encoder_bpe_40000.json and vocab_40000.bpe, and
`--config.tokenizer.add_special=True`, the pieces are the published ones, which have neither upper case nor white space;
otherwise 40,478 byte-level pieces are trained, which keep both.
"""

from bert_jax.configs import base


def get_config():
    config = base.get_config(model="gpt", objective="causal_lm", task="token_blocks")
    config.store = "stores/gpt"
    config.corpus.sentences = "none"
    config.tokenizer.kind = "byte_bpe"
    config.tokenizer.size = 40_478
    config.tokenizer.lowercase = False
    config.model.norm = "post"
    config.model.max_length = 512
    config.optimizer.learning_rate = 2.5e-4
    config.optimizer.epsilon = 1e-8
    config.optimizer.bias_correction = True
    config.schedule.name = "cosine"
    config.schedule.warmup = 2_000
    config.phases.main = base.phase(steps=1_000_000, length=512, batch=64)
    config.evaluate.every = 10_000
    config.checkpoint.every = 5_000
    return config
