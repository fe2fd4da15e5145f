"""A small Transformer that translates numbers in words from German to English: a minute or two on two CPU cores.

    bert-jax pretrain --config translate_demo --workdir runs/translate_demo
    bert-jax predict  --model runs/translate_demo siebenhunderteinundzwanzigtausenddreizehn

It trains on 20,000 numbers below a million, and is evaluated on 1,000 others. German writes a number as one word, and
its ones before its tens, so the decoder has to find in the source what it writes next.

It ends at a BLEU of 100 (one seed): all of them are right, and so are the 1,000 of the split `test`.
"""

from bert_jax.configs import base, transformer_base


def get_config():
    config = transformer_base.get_config()

    # `prepare` writes the pairs into this store, with a vocabulary of parts of words.
    config.store = "stores/translate_demo"
    config.task.data = "builtin:numbers"
    config.task.text = ("de", "en")
    config.task.max_pieces = 30
    config.tokenizer.size = 120

    config.model.layers = 2
    config.model.decoder_layers = 2
    config.model.width = 128
    config.model.heads = 4
    config.model.feed_forward = 256
    # So short a run cannot overfit, and a number has one translation.
    config.model.dropout = 0.0
    config.objective.label_smoothing = 0.0

    # One phase of rows of about eight pairs: the run sees every number two or three times.
    config.phases.main = base.phase(steps=400, length=128, batch=16)
    config.optimizer.learning_rate = 2e-3
    config.schedule.name = "linear"
    config.schedule.warmup = 100

    # Steps between two lines of the log, two evaluations, and two checkpoints.
    config.log.every = 50
    config.evaluate.every = 200
    config.checkpoint.every = 200
    config.checkpoint.average = 1
    return config
