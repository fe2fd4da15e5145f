"""Finds what a config names by `model.name` and the like: the files of the package, and modules outside of it."""

import contextlib
import importlib
import pkgutil
import runpy
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields
from pathlib import Path
from types import ModuleType
from typing import Any

from bert_jax.errors import BadInput, one_line


def nothing(*_) -> dict:
    """Returns no keys, sizes, orders or overrides."""
    return {}


@dataclass(frozen=True, kw_only=True)
class Part:
    """The file of a model, an objective, a task or an optimizer has the names of these fields.

    DEFAULTS: {key: default} of its keys in the config; the type of the default is the type of the key.
    check: (config) -> None; raises BadInput for the first of its keys that has an invalid value.
    make: see models/base.py, objectives/base.py, tasks/base.py and optimizer.py.
    PHASE_DEFAULTS: {key: default} of its keys in each phase; those of models are also keys of the model.
    """

    DEFAULTS: dict
    check: Callable
    make: Callable
    PHASE_DEFAULTS: dict = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Model(Part):
    """That of a model.

    FRAME: of its texts, see tokenizers/special_tokens.py; by default that of BERT.
    TARGET_FRAME: of its targets.
    BODY: subtrees of the network that `init_from` takes, each with a stack of layers; by default all.
    TAKES: {name of another model: {subtree of its body: subtree here}}.
    RULES: (path pattern, axes) of parameters, before those of parallel/mesh.py.
    DECAY: (path pattern, whether weight decay applies), before those of models/base.py.
    ARCHITECTURE: that of convert/architecture.py, of a model outside of the package.
    """

    FRAME: str = ""
    TARGET_FRAME: str = ""
    BODY: tuple[str, ...] = ("",)
    TAKES: dict = field(default_factory=dict)
    RULES: tuple = ()
    DECAY: tuple = ()
    ARCHITECTURE: Any = None


@dataclass(frozen=True, kw_only=True)
class Task(Part):
    """That of a task.

    NEEDS: special tokens without which a vocabulary is refused, separated by blanks; [UNK] is for empty texts.
    fill: (config, store) -> {key of the task: value} of keys that its data decides and that are empty.
    FILLED: names of the numbers among them; those are empty if they are 0, others if they are ().
    assume: (config) -> {key of the task: value} of keys that are empty, without the store.
    check_scores: (config) -> None; raises BadInput if the scores of the task cannot be computed.
    EXAMPLES: tasks/supervised/examples.Examples, if its data are examples instead of running text.
    """

    NEEDS: str = "pad unk cls sep"
    fill: Callable = nothing
    FILLED: tuple[str, ...] = ()
    assume: Callable = nothing
    check_scores: Callable = nothing
    EXAMPLES: Any = None


PARTS = {"model": Model, "objective": Part, "task": Task, "optimizer": Part}
GROUPS = tuple(PARTS)  # of the config, whose keys are in the files that they name
# {group: the packages in which the module of a name is looked up, one after the other}
PLACES = {
    "model": ("bert_jax.models",),
    "objective": ("bert_jax.objectives",),
    "task": ("bert_jax.tasks", "bert_jax.tasks.text"),
    "optimizer": ("bert_jax.optimizers",),
}


@contextlib.contextmanager
def running(path: Path) -> Iterator[dict]:
    """Runs a Python file, and yields its names. Within the context, it can import the files beside it."""
    before = [*sys.path]
    sys.path.append(str(path.absolute().parent))  # last, so that it hides no library
    try:
        yield runpy.run_path(str(path))
    finally:
        sys.path[:] = before


def find_module(group: str, name: str) -> ModuleType:
    """Imports the module that the name of a group, such as `model.name`, names; raises BadInput.

    A name without a dot is a file or a folder in one of the PLACES of the group; with a dot, any module.
    """
    path = name if "." in name else find_path(group, name)
    try:
        module = importlib.import_module(path)
    except (Exception, SystemExit) as error:  # a user's module may raise anything
        reason = f"cannot be imported ({one_line(error)})"
        raise BadInput(f"config.{group}.name={name!r}: {reason}") from None
    missing = missing_names(module)
    if not missing:
        return module
    if "." in name:
        raise BadInput(f"config.{group}.name={name!r}: {path} has no {', '.join(missing)}")
    raise unknown(group, name)  # a file that others share


def find_part(group: str, name: str) -> Part:
    """Returns what the file has that `find_module` finds."""
    names = vars(find_module(group, name))
    part = PARTS[group]
    return part(**{each.name: names[each.name] for each in fields(part) if each.name in names})


def missing_names(module: ModuleType) -> list[str]:
    """Returns the fields of a Part without a default that a module lacks."""
    return [name for name in ("DEFAULTS", "check", "make") if name not in vars(module)]


@contextlib.contextmanager
def own_function(key: str, name: str) -> Iterator[Callable]:
    """Yields the function whose dotted name is the value of a key. Errors of its import, and of the calls within the
    context, become BadInput: a user's code may raise anything."""
    try:
        path, _, last = name.rpartition(".")
        function = getattr(importlib.import_module(path), last)
        if not callable(function):
            raise TypeError("not a function")
        yield function
    except (Exception, SystemExit) as error:
        raise BadInput(f"config.{key}={name!r}: {one_line(error)}") from None


def find_path(group: str, name: str) -> str:
    """Returns the dotted path of a file of bert_jax. Raises BadInput if there is none."""
    for place in PLACES[group]:
        if name in file_names(place):
            return f"{place}.{name}"
    raise unknown(group, name)


def unknown(group: str, name: str) -> BadInput:
    """Returns the error for a name that does not exist, with those that do."""
    names = ", ".join(sorted(registered(group)))
    hint = f"expected one of {names}, or the dotted name of a module"
    return BadInput(f"config.{group}.name={name!r}: {hint}")


def file_names(package: str) -> set[str]:
    """Returns the names of the files and folders in a package."""
    folder = importlib.import_module(package).__path__
    return {module.name for module in pkgutil.iter_modules(folder)}


def registered(group: str) -> set[str]:
    """Returns the names in the PLACES of a group that `find_module` accepts."""
    names = set()
    for place in PLACES[group]:
        for name in file_names(place):
            module = importlib.import_module(f"{place}.{name}")
            if not missing_names(module):
                names.add(name)
    return names
