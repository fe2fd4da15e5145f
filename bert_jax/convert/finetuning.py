"""The config of a run that is fine-tuned: what the model it starts from and its data decide."""

import jax
from ml_collections import ConfigDict

from bert_jax import config as configs
from bert_jax.checks import require
from bert_jax.convert import init_from, open_model
from bert_jax.errors import BadInput
from bert_jax.runs import continuation, jax_setup
from bert_jax.tasks.supervised import epochs, examples


def resolve(config: ConfigDict, overrides=(), several: bool = False) -> ConfigDict:
    """Returns the config with the model of config.init_from, the direction of its attention, and the labels and steps
    that the task's data decide.

    Builds the store of the examples if it is missing.

    overrides: those of the model's keys and of `objective.causal` are applied again to the model of config.init_from.
        Another shape is refused.
    several: whether other runs follow in this process.

    Raises BadInput.
    """
    jax_setup.find_backend()
    if several and jax.process_count() > 1:  # JAX connects processes once
        raise BadInput("finetune: several processes train one run a command")
    require(examples.of(config), "task.name", config, "no labelled examples; use pretrain")
    require(config.init_from, "init_from", config, "expected the run or the model to start from")
    epochs.check(config, overrides)
    model = open_model.open_model(config.init_from, [f"dtype={config.dtype}"], head="")
    config = config.copy_and_resolve_references()
    configs.apply(config, [f"model.name={model.config.model.name}"])
    for key, value in model.config.model.items():
        if continuation.is_of_model(f"model.{key}"):
            config.model[key] = value
    source = model.config.objective
    if "causal" in config.objective and (source.name == "causal_lm" or source.get("causal")):
        config.objective.causal = True
    repeated = ("model.", "objective.causal=")
    configs.apply(config, [override for override in overrides if override.startswith(repeated)])
    configs.adapt(config, config, overrides, epochs.report)
    configs.check(config)  # also whether the model has what the rows of the task need
    store = examples.open_or_build(config, init_from.tokenizer_of(config, model))
    return epochs.fill(config, store, overrides)
