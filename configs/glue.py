"""GLUE (arXiv:1804.07461) in its official layout, fine-tuned as in arXiv:1810.04805.

    bert-jax finetune --config glue:sst2 --config.init_from=runs/mine --workdir runs/sst2
    bert-jax finetune --config glue:all --config.init_from=runs/mine --workdir runs/glue --seeds 3
    bert-jax predict --model runs/sst2 --input glue/SST-2/test.tsv --output SST-2.tsv

The first reads glue/SST-2/train.tsv and dev.tsv; --config.task.data names another directory. `all` runs every task and
prints a table; `cola,rte` runs two. The last one writes predictions as the GLUE server wants them (for CoLA, whose test
file has a header, with --config.task.text=sentence; the diagnostic set AX is predicted by the model of mnli).
"""

from bert_jax.configs import base

PAIR = ("sentence1", "sentence2")
PARAPHRASE = ("f1", "accuracy")
# {name: its keys of config.task}
TASKS = {
    "cola": dict(data="glue/CoLA", text=("3",), label="1", metrics=("matthews",)),
    "sst2": dict(data="glue/SST-2"),
    "mrpc": dict(
        data="glue/MRPC",
        text=("#1 String", "#2 String"),
        label="Quality",
        metrics=PARAPHRASE,
    ),
    "stsb": dict(
        data="glue/STS-B",
        text=PAIR,
        label="score",
        kind="number",
        metrics=("spearman", "pearson"),
    ),
    "qqp": dict(
        data="glue/QQP",
        text=("question1", "question2"),
        label="is_duplicate",
        metrics=PARAPHRASE,
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
    if name not in TASKS:
        raise ValueError(f"no task {name!r}; expected all, or some of {', '.join(TASKS)}")
    config = base.get_config(objective="classifier", task="classification")
    config.task.update(TASKS[name])
    config.store = ""  # beside the workdir
    # 5e-5 for the width of BERT-base, and more for smaller models
    config.optimizer.learning_rate = -1.0
    config.optimizer.bias_correction = True  # few steps: without it, training is unstable
    config.phases.main = base.phase(steps=1, length=128, batch=32)
    config.log.every = 50
    config.evaluate.every = 0
    config.evaluate.rows = 1_000_000
    config.checkpoint.every = 500
    return config
