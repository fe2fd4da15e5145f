"""`finetune`: trains a run or a model of another program on a task with labelled examples."""

import math

from ml_collections import ConfigDict

from bert_jax import cli
from bert_jax import config as configs
from bert_jax.convert import load_model
from bert_jax.data import download, examples
from bert_jax.errors import BadInput
from bert_jax.tasks import base as tasks

OPTIONS = [cli.CONFIG, cli.WORKDIR]


def run(options, overrides) -> int:
    config = cli.load_config(options, overrides)
    from bert_jax.train import pretrain

    return pretrain(resolve(config, options.workdir), options.workdir)


def resolve(config: ConfigDict, workdir) -> ConfigDict:
    """Returns the config with the model of config.init_from, and with the labels and steps that the task's data decide.

    Builds the store of the examples, by default in the workdir, if it is missing. Raises BadInput.
    """
    if not examples.module_of(config):
        raise BadInput(
            f"config.task.name={config.task.name}: has no labelled examples; use pretrain"
        )
    if not config.init_from:
        raise BadInput("config.init_from='': expected the run or the model to start from")
    model = load_model.open_model(config.init_from, ["dtype=float32"])
    config = config.copy_and_resolve_references()
    names = [key for key in model.config.model if configs.is_of_model(f"model.{key}")]
    config.model.update({key: model.config.model[key] for key in names})
    config.store = config.store or f"{download.absolute(str(workdir))}.store"
    store = examples.open_or_build(config, model.tokenizer, cli.log_progress)
    tasks.fill(config, store)
    if config.task.epochs:
        last = config.phases[config.phase_order[-1]]
        rows = len(store.splits["train"].document_ends)
        last.steps = max(1, math.ceil(config.task.epochs * rows / last.batch))
        config.schedule.warmup = round(config.task.warmup * configs.total_steps(config))
    configs.check(config)
    return config
