"""SWAG (arXiv:1808.05326): which of four endings follows a sentence, fine-tuned as in arXiv:1810.04805.

    bert-jax finetune --config swag --config.init_from=runs/mine --config.task.data=swag --workdir runs/swag

It reads swag/train.csv and val.csv of the official release. Other tables with a column for each ending need other names
of columns: --config.task.context, start, endings and label. A row has the four pairs of texts one after the other, so
its length is four times that of a pair. The learning rate is that of BERT-base; small models want a larger one, such as
the one by width, --config.optimizer.learning_rate=-1.
"""

from bert_jax.configs import base, glue


def get_config():
    config = glue.get_config()
    base.use(config, objective="multiple_choice", task="multiple_choice")
    config.task.update(data="swag", train="train.csv", dev=("val.csv",))
    config.optimizer.learning_rate = 2e-5
    config.phases.main.update(length=320, batch=16)
    return config
