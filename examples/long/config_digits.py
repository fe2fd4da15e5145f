"""Pixels of handwritten digits by local attention in two dimensions:

    bert-jax pretrain --config examples/long/config_digits.py --workdir runs/long_digits

The same by attention to all pixels before each one, line by line:

    bert-jax pretrain --config examples/long/config_digits.py:full --workdir runs/long_digits_full
"""

from bert_jax.configs import base

# A step of `full` takes a fifth longer.
STEPS = {"local": 2630, "full": 2140}


def get_config(attention="local"):
    names = {"model": "long.image", "objective": "long.objective", "task": "long.digits"}
    config = base.get_config(**names)
    config.store = "stores/long_digits"
    config.tokenizer.size = 60

    config.model.layers = 4
    config.model.width = 64
    config.model.heads = 4
    config.model.dropout = 0.2
    config.model.attention_dropout = 0.0
    config.model.initializer = 0.05
    if attention == "full":
        config.model.query_height = config.model.image_height
        config.model.query_width = config.model.image_width
        config.model.above = 0  # there is nothing around the image
        config.model.beside = 0

    config.phases.main = base.phase(steps=STEPS[attention], length=65, batch=50)
    config.optimizer.learning_rate = 3e-3
    config.optimizer.beta2 = 0.99
    config.optimizer.bias_correction = True
    config.optimizer.weight_decay = 0.1
    config.schedule.name = "cosine"
    config.schedule.warmup = 200

    # Steps between two lines of the log, two evaluations, and two checkpoints.
    config.log.every = 100
    config.evaluate.every = 500
    config.checkpoint.every = 500
    return config
