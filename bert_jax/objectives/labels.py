"""Labels of examples as targets: one of several classes, any of several labels, or a number."""

import re

import numpy as np

from bert_jax.config_checks import split_list
from bert_jax.data import examples
from bert_jax.errors import BadInput

NUMBER = re.compile(r"\s*[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d\d?)?\s*", re.I)
# {kind of labels, as task.kind: dtype of their targets}
DTYPES = {"classes": np.int32, "labels": np.float32, "number": np.float32}


def kind_of(config) -> str:
    """Returns the kind of a task's labels, a key of DTYPES."""
    return config.task.get("kind", "classes")


def names_of(example: examples.Example, kind: str) -> list[str]:
    """Returns the names of an example's labels."""
    label = example.label
    if isinstance(label, list):
        return label
    return [*filter(None, split_list(label))] if kind == "labels" else [label]


def target(example: examples.Example, names: list[str], kind: str) -> int | float | np.ndarray:
    """Converts a label to a target; None to the first label. Raises BadInput for a label that is not in `names`."""
    label = example.label
    if kind == "number":
        if not NUMBER.fullmatch(str(label or 0)):
            raise BadInput(f"{example.place}: label {label!r}: expected a number")
        return float(label or 0)
    known = [] if label is None else names_of(example, kind)
    if kind == "classes" and len(known) > 1:
        raise BadInput(f"{example.place}: label {label!r}: expected one")
    numbers = [examples.number(example, name, names) for name in known]
    return sum(numbers) if kind == "classes" else np.isin(np.arange(len(names)), numbers)
