"""Copies, reverses and adds digits, trained on up to 20 of them and evaluated on 30, by a Universal Transformer:

    bert-jax pretrain --config examples/universal/config.py --workdir runs/universal

The same by a Transformer, with blocks of their own, as many as the other has passes without halting:

    bert-jax pretrain --config examples/universal/config.py:transformer --workdir runs/universal_transformer
"""

from bert_jax.configs import base

OBJECTIVES = {"universal": "universal.objective", "transformer": "translation"}


def get_config(network="universal"):
    names = {"model": "universal.model", "objective": OBJECTIVES[network]}
    config = base.get_config(task="universal.digits", **names)
    config.store = "stores/digits"
    config.tokenizer.size = 40
    config.task.max_pieces = 40
    config.task.epochs = 0.0  # the steps below

    config.model.layers = 3
    config.model.decoder_layers = 3
    config.model.width = 64
    config.model.heads = 4
    config.model.feed_forward = 256
    config.model.max_length = 256
    config.model.dropout = 0.0
    config.model.offsets = 20
    config.model.shared = network == "universal"
    config.model.halting = network == "universal"
    if network == "universal":
        config.objective.ponder = 0.001  # a tenth of tensor2tensor's
    config.objective.label_smoothing = 0.0

    # Rows of about five pairs.
    config.phases.main = base.phase(steps=3000, length=128, batch=32)
    config.optimizer.learning_rate = 2e-3
    config.schedule.warmup = 300

    # Steps between two lines of the log, two evaluations, and two checkpoints.
    config.log.every = 100
    config.evaluate.every = 1000
    config.evaluate.rows = 400
    config.checkpoint.every = 500
    return config
