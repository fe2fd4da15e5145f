"""The base Transformer of arXiv:1706.03762 on parallel text of your own: 6 + 6 layers of width 512, 63M parameters.

bert-jax pretrain --config transformer_base --config.task.data=DIR --config.task.text=en,de --workdir runs/en_de

DIR has train.en, train.de, dev.en and dev.de. The recipe is the paper's: 37,000 pieces of both languages, 100,000 steps
of about 25,000 source and 25,000 target tokens, Adam, label smoothing, and the mean of five checkpoints. The paper
reports 27.3 BLEU on WMT 2014 English-German, 4.5 million pairs.
"""

from bert_jax.configs import base


def get_config():
    config = base.get_config(model="transformer", objective="translation", task="translation")
    config.store = "stores/translation"
    config.task.train = "train"
    config.task.dev = ("dev",)
    config.task.epochs = 0.0  # the steps below
    config.task.warmup = 1 / 3  # of a run that is too short for the one below
    config.tokenizer.kind = "bpe"
    config.tokenizer.size = 37000
    config.tokenizer.lowercase = False

    config.optimizer.learning_rate = 0.0  # the paper's peak, 7.0e-4
    config.optimizer.beta2 = 0.98
    config.optimizer.epsilon = 1e-9
    config.optimizer.bias_correction = True
    config.optimizer.weight_decay = 0.0
    config.optimizer.clip = 0.0
    config.schedule.name = "inverse_sqrt"
    config.schedule.warmup = 4000

    # 24,100 tokens on each side, since packed rows are 98 % full. Up to 32 chips can share the rows.
    config.phases.main = base.phase(steps=100_000, length=256, batch=96)
    # About ten minutes of the paper's machine.
    config.checkpoint.every = 1500
    config.checkpoint.keep = 5
    config.checkpoint.average = 5
    config.evaluate.every = 3000
    config.evaluate.batch = 64
    return config
