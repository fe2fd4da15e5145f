"""Finds a task by its name."""

import importlib

from bert_jax.data.dataset import Dataset
from bert_jax.data.store import Store


def find(config):
    """Returns the module that `config.task.name` names: a file of this directory, or a dotted module anywhere."""
    name = config.task.name
    return importlib.import_module(name if "." in name else f"bert_jax.tasks.{name}")


def make(config, store: Store | None = None) -> Dataset:
    """Returns the dataset of the task. Without a store, only its shapes and splits can be used.

    Raises BadInput if the store has too few documents.
    """
    return find(config).make(config, store)


def fill(config, store: Store) -> None:
    """Sets the keys of the task that its data decides and that are empty, such as the names of labels.

    The task's module names them by `fill(config, store) -> {key: value}`, if it has any.
    """
    filled = getattr(find(config), "fill", lambda *_: {})(config, store)
    with config.unlocked():
        config.task.update({key: filled[key] for key in filled if config.task[key] == ()})
