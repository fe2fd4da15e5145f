"""A first real run: Wikipedia on two CPU cores in about 90 minutes, 3 layers of width 192, 3M parameters.

The text is 15,000 articles of the English Wikipedia of 2014 and the Simple English Wikipedia of 2017, both as
WikiExtractor writes them: 37.8M training tokens. After 9,000 steps the held-out loss at [MASK] is 3.86 nats;
frequencies alone have 6.99; `loss`, of all predicted tokens, is 4.85, 4.25 and 3.6 at steps 2,000, 4,000 and 9,000.
benchmarks/README.md has the run, and what it gains over random weights when fine-tuned.

    bert-jax pretrain --config first_real --workdir runs/first_real \
        --config.corpus.source=enwiki-2014-part0.txt.xz,simplewiki-2017.txt.xz

The same command resumes it. Rows of 64 tokens come first, since they leave the loss of frequencies sooner than rows of
128 (at step 450: 6.99 and 7.07 nats, with 4 layers).
"""

from bert_jax.configs import base


def get_config():
    config = base.get_config(task="full_sentences")
    config.store = "stores/first_real"
    config.corpus.source = "enwiki-2014-part0.txt.xz,simplewiki-2017.txt.xz"
    config.corpus.format = "wiki"
    config.corpus.sentences = "rules"
    config.tokenizer.size = 8192
    config.model.layers = 3
    config.model.width = 192
    config.model.heads = 3
    config.model.max_length = 128
    config.model.dropout = 0.0
    config.model.attention_dropout = 0.0
    config.model.initializer = 0.05
    config.optimizer.learning_rate = 2e-3
    config.optimizer.beta2 = 0.98
    config.optimizer.bias_correction = True
    config.schedule.name = "cosine"
    config.schedule.warmup = 300
    config.phase_order = ("short", "long")
    config.phases = base.ConfigDict(
        dict(
            short=base.phase(steps=4000, length=64, batch=64, max_predictions=10),
            long=base.phase(steps=5000, length=128, batch=32, max_predictions=20),
        )
    )
    config.log.every = 50
    config.evaluate.every = 500
    config.evaluate.rows = 1024
    config.checkpoint.every = 500
    return config
