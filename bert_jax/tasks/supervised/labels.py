"""Labels of examples as targets: one of several classes, any of several labels, or a number."""

import contextlib
import json

import numpy as np

from bert_jax.checks import split_list
from bert_jax.data.sources import tables
from bert_jax.errors import BadInput
from bert_jax.tasks.supervised import examples

MAX_NUMBER = float(np.finfo(np.float32).max)
# {kind of labels, as task.kind: dtype of their targets}
DTYPES = {
    "classes": np.int32,
    "labels": np.float32,
    "number": np.float32,
}


def kind_of(config) -> str:
    """Returns the kind of a task's labels, a key of DTYPES."""
    return config.task.get("kind", "classes")


def assume(config) -> dict:
    """Returns the names of labels to assume while there is no store."""
    return {} if kind_of(config) == "number" else {"labels": ("0", "1")}


def names_of(example: examples.Example, kind: str) -> list[str]:
    """Returns the names of an example's labels, which a text has between commas, or in a list as JSON or Python write
    it. Raises BadInput for several names of classes, and a name twice."""
    label = example.label
    names = label if isinstance(label, list) else read_list(label)
    if names is None:
        names = split_list(label) if kind == "labels" else [label]
    names = [tables.text_of(example.location, name) for name in names if name != ""]
    has_other_count = kind == "classes" and len(names) != 1
    if has_other_count or len(set(names)) < len(names):
        hint = "one name, or for task.kind=labels names between commas or in a JSON list, each once"
        raise BadInput(f"{example.location}: label {label!r}: expected {hint}")
    return names


def read_list(text: str) -> list | None:
    """Returns the list in a text; None if it has none."""
    if not text.lstrip().startswith("["):
        return None
    for document in (text, text.replace("'", '"')):
        with contextlib.suppress(RecursionError, ValueError):
            return json.loads(document)
    return None


def target(config, example: examples.Example, names: list[str]) -> int | float | np.ndarray:
    """Converts a label to a target: None to 0, the first class or no label that applies. Raises BadInput for a label
    that is not in `names`."""
    kind = kind_of(config)
    label = example.label
    if label is None:
        return np.zeros(len(names)) if kind == "labels" else 0
    if kind == "number":
        with contextlib.suppress(ValueError):
            if abs(number := float(str(label))) <= MAX_NUMBER:
                return number
        raise BadInput(f"{example.location}: label {label!r}: expected a number")
    numbers = [examples.label_number(example, name, names) for name in names_of(example, kind)]
    if kind == "classes":
        return numbers[0]
    return np.isin(np.arange(len(names)), numbers)
