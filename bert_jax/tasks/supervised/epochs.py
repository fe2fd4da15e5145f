"""The keys of a run that its examples decide: names of labels, and the steps of `task.epochs`."""

import math

import jax
from ml_collections import ConfigDict

from bert_jax import config as configs
from bert_jax.data.store import Store
from bert_jax.errors import BadInput, log
from bert_jax.tasks import base as tasks
from bert_jax.tasks.supervised import examples


def resolve(config: ConfigDict, overrides=()) -> ConfigDict:
    """Returns the config of a run that starts from random weights, with the keys that its examples decide.

    Builds the store of the examples if it is missing. overrides: see `check`. Raises BadInput.
    """
    check(config, overrides)
    store = examples.open_or_build(config)
    return fill(config.copy_and_resolve_references(), store, overrides)


def check(config: ConfigDict, overrides) -> None:
    """Raises BadInput for overrides of keys that the examples decide, and if several processes have no store."""
    key = f"phases.{config.phase_order[-1]}.steps"
    if config.task.epochs and key in configs.overridden(overrides):
        raise BadInput(f"config.{key}: task.epochs decides it; set config.task.epochs=0")
    tasks.check_prepared(config)


def fill(config: ConfigDict, store: Store, overrides) -> ConfigDict:
    """Sets the keys that the examples of a store decide; returns the config. Raises BadInput if it is invalid."""
    tasks.fill(config, store)
    for name, number in store.manifest.get("copies", {}).items():
        if number:
            report(f"warning: {name}: {number:,} examples are in train, too")
    if config.task.epochs:
        set_steps(config, store, overrides)
    configs.check(config)
    return config


def set_steps(config: ConfigDict, store: Store, overrides) -> None:
    """Sets the steps of the last phase to those of task.epochs, and the keys that follow from them."""
    before = config.copy_and_resolve_references()
    phase = configs.phases(config)[-1]
    rows = len(tasks.make(config, store).rows(phase, "train", 0))
    phase.keys.steps = max(1, math.ceil(config.task.epochs * rows / phase.batch))
    # Both keys are decided now, as if they were overridden.
    decided = [f"phases.{phase.name}.steps", "task.epochs"]
    configs.adapt(config, before, [*overrides, *decided], report)


def report(line: str) -> None:
    """Prints a line on standard error, in one process of the run."""
    if jax.process_index() == 0:
        log(line)
