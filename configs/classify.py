"""A table of your own with one or two columns of texts and a column of labels; see docs/classify.md.

    bert-jax finetune --config classify --config.init_from=runs/mine --config.task.data=DIR \
        --config.task.train=mails.csv --config.task.text=subject,body --config.task.label=team --workdir runs/mails

Without init_from, bert-jax pretrain trains it from random weights, with a vocabulary of its own texts.
A tenth of the rows is held out for evaluation; --config.task.dev=FILE names a file for it instead.
"""

from bert_jax.configs import glue


def get_config():
    config = glue.get_config("sst2")
    config.task.update(data="", train="train.csv", dev=(), text=("text",))
    config.task.metrics = ("accuracy", "macro_f1")
    return config
