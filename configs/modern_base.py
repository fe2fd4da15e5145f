"""ModernBERT-base (arXiv:2412.13663): 22 layers of width 768, 149 million parameters, rows of 1,024, then 8,192 tokens.

    bert-jax pretrain --config modern_base --workdir runs/modern_base \
        --config.corpus.source='text/*.jsonl' --config.corpus.format=jsonl

The numbers of steps are placeholders for a first try: the recipe of the paper (StableAdamW, warm-up by tokens) is not
in this config yet.
"""

from bert_jax.configs import base


def get_config():
    config = base.get_config(model="modernbert", task="full_sentences")
    config.store = "stores/modern_base"
    config.tokenizer.kind = "byte_bpe"
    config.tokenizer.size = 50_368
    config.tokenizer.lowercase = False
    config.objective.pair_task = "none"
    config.task.mask_rate = 0.3
    config.phase_order = ("short", "long")
    config.phases = base.ConfigDict(
        dict(
            short=base.phase(
                steps=1000, length=1024, batch=1024, max_predictions=316, rotary_base=10_000.0
            ),
            long=base.phase(steps=1000, length=8192, batch=128, max_predictions=2500),
        )
    )
    config.train.rows_per_device = 16
    return config
