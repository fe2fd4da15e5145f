"""GPT-2 small (Radford et al. 2019): 12 layers of width 768, 124 million parameters, rows of 1,024 tokens.

    bert-jax pretrain --config gpt2_small --workdir runs/gpt2 --config.corpus.source='text/*.jsonl' \
        --config.corpus.format=jsonl

With `--config.tokenizer.path=DIR`, a directory with GPT-2's encoder.json and vocab.bpe, the pieces are the published
ones; otherwise 50,257 are trained on the text. The model and the batch of 512 rows are those of GPT-2, whose rate and
number of steps were not published. The rates, Adam, the weight decay and the 300 billion tokens are those of GPT-3's
models of these sizes (arXiv:2005.14165, table 2.1 and appendix B), but the cosine ends at 0 instead of a tenth of the
rate. With fewer tokens, the warm-up of 715 steps can stay. If no text is seen twice, set `model.dropout` and
`model.attention_dropout` to 0.
"""

from bert_jax.configs import base


def get_config():
    config = base.get_config(model="gpt", objective="causal_lm", task="token_blocks")
    config.store = "stores/gpt2"
    config.corpus.sentences = "none"
    config.tokenizer.kind = "byte_bpe"
    config.tokenizer.size = 50_257
    config.tokenizer.lowercase = False
    config.optimizer.learning_rate = 6e-4
    config.optimizer.beta2 = 0.95
    config.optimizer.epsilon = 1e-8
    config.optimizer.bias_correction = True
    config.optimizer.weight_decay = 0.1
    config.schedule.name = "cosine"
    config.schedule.warmup = 715
    config.phases.main = base.phase(steps=572_000, length=1024, batch=512)
    config.train.tokens_per_device = 16_384
    config.evaluate.every = 2_000
    config.checkpoint.every = 1_000
    return config
