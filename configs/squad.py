"""SQuAD 1.1 (arXiv:1606.05250) and 2.0 (arXiv:1806.03822), fine-tuned as in arXiv:1810.04805.

    bert-jax finetune --config squad --config.init_from=runs/mine --workdir runs/squad
    bert-jax finetune --config squad:2 --config.init_from=runs/mine --workdir runs/squad2
    bert-jax predict --model runs/squad --context FILE --question "Who wrote it?"
    bert-jax predict --model runs/squad --input squad/test.json --output predictions.json

The first reads squad/train-v1.1.json and dev-v1.1.json; --config.task.data names another directory.
--config.task.dev="()" holds a tenth of the articles in `train` out for evaluation. In 2.0, some have no answer;
metrics.jsonl has the best_threshold for them, see task.null_threshold.
"""

from bert_jax.configs import base, glue

TASKS = {"1": "1.1", "2": "2.0"}  # {name: version}


def get_config(name="1"):
    if name not in TASKS:
        raise ValueError(f"no version {name!r}; expected 1 or 2")
    version = TASKS[name]
    config = glue.get_config()
    base.use(config, objective="spans", task="question_answering")
    config.task.update(data="squad", train=f"train-v{version}.json", dev=(f"dev-v{version}.json",))
    config.task.update(epochs=2.0, no_answer=name == "2")
    config.phases.main.length = 384
    return config
