"""Finds a task by its name."""

from bert_jax.config_checks import find_module
from bert_jax.data.dataset import Dataset
from bert_jax.data.store import Store


def make(config, store: Store | None = None) -> Dataset:
    """Returns the dataset of the task. Without a store, only its shapes and splits can be used.

    Raises BadInput if the store has too few documents.
    """
    return find_module("task", config.task.name).make(config, store)


def fill(config, store: Store) -> None:
    """Sets the keys of the task that its data decides and that are empty, such as the names of labels.

    The task's module names them by `fill(config, store) -> {key: value}`, if it has any.
    """
    module = find_module("task", config.task.name)
    filled = module.fill(config, store) if hasattr(module, "fill") else {}
    with config.unlocked():
        config.task.update({key: filled[key] for key in filled if config.task[key] == ()})
