"""Named entities in files of columns (CoNLL format), fine-tuned as in arXiv:1810.04805.

    bert-jax finetune --config ner --config.init_from=runs/mine --config.task.data=conll2003 --workdir runs/ner

It reads conll2003/train.txt and dev.txt: a word in a line, its label in the last column, and empty lines between
sentences. --config.task.columns=0,3 names other columns; --config.task.dev=valid.txt,test.txt names other files.
"""

from bert_jax.configs import base, glue


def get_config():
    config = glue.get_config()
    base.use(config, objective="token_classifier", task="token_classification")
    config.task.update(data="ner", train="train.txt", dev=("dev.txt",))
    return config
