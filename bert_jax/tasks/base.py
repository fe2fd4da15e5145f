"""Finds a task by its name."""

import importlib

from bert_jax.data.dataset import Dataset
from bert_jax.data.store import Store


def make(config, store: Store | None = None) -> Dataset:
    """Returns the dataset of the task that `config.task.name` names: a file of this directory, or a dotted module.

    Without a store, only its shapes and splits can be used. Raises BadInput if the store has too few documents.
    """
    name = config.task.name
    module = importlib.import_module(name if "." in name else f"bert_jax.tasks.{name}")
    return module.make(config, store)
