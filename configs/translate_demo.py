"""A small Transformer that translates numbers in words from German to English: minutes on two CPU cores.

    bert-jax pretrain --config translate_demo --workdir runs/translate_demo
    bert-jax predict  --model runs/translate_demo siebenhunderteinundzwanzigtausenddreizehn

It trains on 20,000 numbers below a million, and is evaluated on 1,000 others. German writes a number as one word, and
its ones before its tens, so the decoder has to find in the source what it writes next.
"""

from bert_jax.configs import base


def get_config():
    config = base.get_config(model="transformer", objective="translation", task="translation")

    # `prepare` writes the pairs into this store, with a vocabulary of parts of words.
    config.store = "stores/translate_demo"
    config.task.update(data="builtin:numbers", train="train", dev=("dev",), text=("de", "en"))
    config.task.max_pieces = 30
    config.tokenizer.kind = "bpe"
    config.tokenizer.size = 120

    config.model.update(layers=2, decoder_layers=2, width=128, heads=4, feed_forward=256)
    config.model.max_length = 128
    # So short a run cannot overfit, and a number has one translation.
    config.model.dropout = 0.0
    config.objective.label_smoothing = 0.0

    # One phase of rows of about eight pairs; it sees every number two or three times.
    config.task.epochs = 0.0
    config.phases.main = base.phase(steps=400, length=128, batch=16)
    config.optimizer.update(learning_rate=2e-3, beta2=0.98, epsilon=1e-9, weight_decay=0.0)
    config.optimizer.bias_correction = True
    config.schedule.warmup = 100

    # Steps between two lines of the log, two evaluations, and two checkpoints.
    config.log.every = 50
    config.evaluate.every = 200
    config.evaluate.rows = 1000
    config.checkpoint.every = 200
    return config
