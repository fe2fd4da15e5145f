"""GLUE (arXiv:1804.07461), as fine-tuned in arXiv:1810.04805, in its official layout.

    bert-jax finetune --config configs/glue.py:sst2 --config.init_from=runs/mine --config.task.data=glue/SST-2 \
        --workdir runs/sst2
"""

from bert_jax.configs import base

PAIR = ("sentence1", "sentence2")
# {name: its keys of config.task}
TASKS = {
    "cola": dict(data="glue/CoLA", text=("3",), label="1", metrics=("matthews",)),
    "sst2": dict(data="glue/SST-2"),
    "mrpc": dict(
        data="glue/MRPC",
        text=("#1 String", "#2 String"),
        label="Quality",
        metrics=("f1", "accuracy"),
    ),
    "stsb": dict(
        data="glue/STS-B", text=PAIR, label="score", kind="number", metrics=("spearman", "pearson")
    ),
    "qqp": dict(
        data="glue/QQP",
        text=("question1", "question2"),
        label="is_duplicate",
        metrics=("f1", "accuracy"),
    ),
    "mnli": dict(
        data="glue/MNLI",
        text=PAIR,
        label="gold_label",
        dev=("dev_matched.tsv", "dev_mismatched.tsv"),
    ),
    "qnli": dict(data="glue/QNLI", text=("question", "sentence")),
    "rte": dict(data="glue/RTE", text=PAIR),
    "wnli": dict(data="glue/WNLI", text=PAIR),
}


def get_config(name="sst2"):
    config = base.get_config(objective="classifier", task="classify")
    config.task.update(TASKS[name])
    config.store = ""  # beside the workdir
    config.optimizer.learning_rate = 3e-5
    config.optimizer.bias_correction = True
    config.phases.main = base.phase(steps=1, length=128, batch=32)
    config.log.every = 50
    config.evaluate.every = 0
    config.evaluate.rows = 100_000
    config.checkpoint.every = 500
    return config
