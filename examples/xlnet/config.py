"""A small XLNet trained on the documentation inside every Python installation: minutes on two CPU cores.

    bert-jax pretrain --config examples/xlnet/config.py --workdir runs/xlnet

A BERT with rotary positions on the same rows, for a comparison:

    bert-jax pretrain --config examples/xlnet/config.py:bert --workdir runs/xlnet_bert
"""

from bert_jax.configs import base

NETWORKS = {
    "xlnet": {"model": "xlnet.model", "objective": "xlnet.objective", "task": "xlnet.task"},
    "bert": {},
}


def get_config(network="xlnet"):
    config = base.get_config(**NETWORKS[network])
    if network == "bert":
        config.model.positions = "rotary"
    config.store = "stores/xlnet"
    config.tokenizer.kind = "unigram"
    config.tokenizer.size = 8192
    config.tokenizer.lowercase = False

    config.model.layers = 2
    config.model.width = 128
    config.model.heads = 4
    config.model.max_length = 128
    # So short a run sees every row about once and cannot overfit.
    config.model.dropout = 0.0
    config.model.attention_dropout = 0.0
    # 0.02 suits a width of 768; here attention would stay uniform for long.
    config.model.initializer = 0.06

    config.phases.main = base.phase(steps=2000, length=128, batch=24, max_predictions=21)
    config.optimizer.learning_rate = 3e-3
    config.optimizer.beta2 = 0.99
    config.optimizer.bias_correction = True
    config.schedule.warmup = 400

    # Steps between two lines of the log, two evaluations, and two checkpoints.
    config.log.every = 50
    config.evaluate.every = 500
    config.evaluate.rows = 512
    config.checkpoint.every = 500
    return config
