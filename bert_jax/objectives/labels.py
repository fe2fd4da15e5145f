"""Labels of examples as targets: one of several classes, any of several labels, or a number."""

import contextlib
import json
import re

import numpy as np

from bert_jax.config_checks import split_list
from bert_jax.data import examples, tables
from bert_jax.errors import BadInput

NUMBER = re.compile(r"\s*[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d\d?)?\s*", re.I)
# of a list between other marks than commas, or as another program writes it
OTHER_LIST = re.compile(r"""[;|]|[\[({]\s*["']|^\s*[\[({][^\])}]*,""")
# {kind of labels, as task.kind: dtype of their targets}
DTYPES = {"classes": np.int32, "labels": np.float32, "number": np.float32}


def kind_of(config) -> str:
    """Returns the kind of a task's labels, a key of DTYPES."""
    return config.task.get("kind", "classes")


def names_of(example: examples.Example, kind: str) -> list[str]:
    """Returns the names of an example's labels, which a text has between commas, or in a list as JSON or Python write
    it. Raises BadInput for several names of classes, a name twice, and other lists."""
    label = example.label
    names = label if isinstance(label, list) else read_list(label)
    is_text = names is None
    if is_text:
        names = split_list(label) if kind == "labels" else [label]
    names = [tables.text_of(example.place, name) for name in names if name != ""]
    if kind == "classes" and len(names) != 1:
        raise BadInput(f"{example.place}: label {label!r}: expected one")
    is_other = is_text and kind == "labels" and OTHER_LIST.search(label)
    if is_other or len({*names}) < len(names):
        hint = "expected names between commas or in a JSON list, each once"
        raise BadInput(f"{example.place}: label {label!r}: {hint}")
    return names


def read_list(text: str) -> list | None:
    """Returns the list in a text; None if it has none."""
    for document in (text, text.replace("'", '"')) if text.startswith("[") else ():
        with contextlib.suppress(RecursionError, ValueError):
            return json.loads(document)
    return None


def target(example: examples.Example, names: list[str], kind: str) -> int | float | np.ndarray:
    """Converts a label to a target; None to the first label. Raises BadInput for a label that is not in `names`."""
    label = example.label
    if kind == "number":
        if not NUMBER.fullmatch(str(label or 0)):
            raise BadInput(f"{example.place}: label {label!r}: expected a number")
        return float(label or 0)
    chosen = [] if label is None else names_of(example, kind)
    numbers = [examples.number(example, name, names) for name in chosen]
    return sum(numbers) if kind == "classes" else np.isin(np.arange(len(names)), numbers)


def warnings(names: tuple[str, ...]) -> list[str]:
    """Returns warnings about names of labels that differ in blanks, case or the form of a number alone."""
    groups = {}
    for name in names:
        key = " ".join(name.casefold().split())
        groups.setdefault(float(key) if NUMBER.fullmatch(key) else key, []).append(name)
    return [f"labels {group} are different ones" for group in groups.values() if len(group) > 1]
