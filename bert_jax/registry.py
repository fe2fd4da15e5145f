"""Finds what a config names by `model.name` and the like: the files of the package, and modules outside of it."""

import contextlib
import importlib.util
import pkgutil
import runpy
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import MISSING, dataclass, field, fields, replace
from pathlib import Path
from types import ModuleType

from bert_jax.errors import BadInput, one_line


def nothing(*_) -> dict:
    """Returns no keys, sizes, orders or overrides."""
    return {}


class Interface:
    """What files of models, objectives, tasks and optimizers give: frozen dataclasses with keywords alone.

    Raises TypeError for a field that is missing or of another type.
    """

    def __post_init__(self):
        for each in fields(self):
            value = getattr(self, each.name)
            if not isinstance(value, each.type):
                raise TypeError(f"{each.name}: expected {each.type}, not {value!r}")


@dataclass(frozen=True, kw_only=True)
class Part(Interface):
    """The file of a model, an objective, a task or an optimizer has the names of these fields.

    DEFAULTS: {key: default} of its keys in the config; the type of the default is the type of the key.
    check: (config) -> None; raises BadInput for the first of its keys that has an invalid value; by default none
        has.
    make: of a model: (config, vocabulary_size, **fields) -> flax.linen.Module, see models/base.py.
        of an objective: (config, vocabulary, **fields) -> Objective, see objectives/base.py.
        of a task: (config, store=None) -> Dataset, see data/dataset.py.
        of an optimizer: (config, peak) -> optax.GradientTransformation, see optimizers/base.py.
    PHASE_DEFAULTS: {key: default} of its keys in each phase; those of models are also keys of the model.
    """

    DEFAULTS: dict
    check: Callable = nothing
    make: Callable
    PHASE_DEFAULTS: dict = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class ModelPart(Part):
    """The file of a model also has the names of these fields.

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
    BODY: tuple = ("",)
    TAKES: dict = field(default_factory=dict)
    RULES: tuple = ()
    DECAY: tuple = ()
    ARCHITECTURE: object = None


@dataclass(frozen=True, kw_only=True)
class TaskPart(Part):
    """The file of a task also has the names of these fields.

    NEEDS: special tokens without which a vocabulary is refused, separated by blanks; [UNK] is for empty texts.
    fill: (config, store) -> {key of the task: value} of keys that its data decides and that are empty.
    FILLED: names of the numbers among them; those are empty if they are 0, others if they are ().
    assume: (config) -> {key of the task: value} of keys that are empty, without the store.
    check_scores: (config) -> None; raises BadInput if the scores of the task cannot be computed.
    EXAMPLES: tasks/supervised/examples.Examples, if its data are examples instead of running text.
    """

    NEEDS: str = "pad unk cls sep"
    fill: Callable = nothing
    FILLED: tuple = ()
    assume: Callable = nothing
    check_scores: Callable = nothing
    EXAMPLES: object = None


PARTS = {"model": ModelPart, "objective": Part, "task": TaskPart, "optimizer": Part}
# Beginnings of the paths of files that are not a user's code.
LIBRARIES = (str(Path(__file__).parent), sysconfig.get_path("stdlib"), "<frozen")
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
    """Runs a Python file, and yields its names. Within the context, it can import the files beside it, also as those of
    a package with the name of their folder."""
    before = [*sys.path]
    add_folders(map(str, path.absolute().parents[:2]))
    try:
        yield runpy.run_path(str(path))
    finally:
        sys.path[:] = before


def add_folders(folders: Iterable[str]) -> None:
    """Adds folders in which modules are looked up; last, so that they hide no library."""
    sys.path += [folder for folder in folders if folder not in sys.path]


def module_folders(config) -> list[str]:
    """Returns the folders of the modules outside of the package that a config names: those in which Python looks the
    modules up."""
    names = [config[group].name for group in GROUPS] + [config.corpus.map, config.evaluate.metric]
    folders = set()
    for name in names:
        package, dot, _ = name.partition(".")
        spec = importlib.util.find_spec(package) if dot else None
        if spec:
            folders.update(spec.submodule_search_locations or [spec.origin])
    return sorted(str(Path(folder).absolute().parent) for folder in folders)


def find_module(group: str, name: str) -> ModuleType:
    """Imports the module that the name of a group, such as `model.name`, names; raises BadInput.

    A name without a dot is a file or a folder in one of the PLACES of the group; with a dot, any module.
    """
    path = name if "." in name else paths(group).get(name)
    if not path:
        raise unknown(group, name)
    with naming(f"{group}.name", name):
        return importlib.import_module(path)


def find_part(group: str, name: str) -> Part:
    """Returns what the module has that `find_module` finds. Raises BadInput for a wrong or missing field, also of what
    `make` of a module outside of the package gives."""
    module = find_module(group, name)
    is_outside = "." in name
    if not is_outside and missing_names(group, module):  # a file that others share
        raise unknown(group, name)
    named = naming(f"{group}.name", name, TypeError)
    part = named(read)(group, module)
    if is_outside:
        part = replace(part, make=named(part.make))
    return part


def part_of(config, group: str) -> Part:
    """Returns what the module has that a group of the config names, see `find_part`."""
    return find_part(group, config[group].name)


def read(group: str, module: ModuleType) -> Part:
    """Returns the Part of a module; raises TypeError, which names a wrong or missing field."""
    if missing := missing_names(group, module):
        raise TypeError(f"{module.__name__} has no {', '.join(missing)}")
    part = PARTS[group]
    names = vars(module)
    return part(**{each.name: names[each.name] for each in fields(part) if each.name in names})


def missing_names(group: str, module: ModuleType) -> list[str]:
    """Returns the fields without a default that a module lacks."""
    defaults = {each.name: (each.default, each.default_factory) for each in fields(PARTS[group])}
    required = [name for name in defaults if defaults[name] == (MISSING, MISSING)]
    return [name for name in required if name not in vars(module)]


@contextlib.contextmanager
def naming(key: str, name: str, errors=(Exception, SystemExit)) -> Iterator[None]:
    """Makes BadInput, which names a module or a function, its key and its last line, of errors in the context; by
    default of all, as a user's code may raise anything."""
    try:
        yield
    except errors as error:
        frames = traceback.extract_tb(error.__traceback__)
        outside = [each for each in frames if not each.filename.startswith(LIBRARIES)]
        line = f" ({outside[-1].filename}:{outside[-1].lineno})" if outside else ""
        raise BadInput(f"config.{key}={name!r}: {one_line(error)}{line}") from error


@contextlib.contextmanager
def user_function(key: str, name: str) -> Iterator[Callable]:
    """Yields the function whose dotted name is the value of a key. Errors of its import, and of the calls within the
    context, become BadInput."""
    with naming(key, name):
        path, _, last = name.rpartition(".")
        function = getattr(importlib.import_module(path), last)
        if not callable(function):
            raise TypeError("not a function")
        yield function


def unknown(group: str, name: str) -> BadInput:
    """Returns the error for a name that does not exist, with those that do."""
    names = ", ".join(sorted(registered(group)))
    hint = f"expected one of {names}, or the dotted name of a module"
    return BadInput(f"config.{group}.name={name!r}: {hint}")


def paths(group: str) -> dict[str, str]:
    """Returns {name: dotted path} of the files and folders in the PLACES of a group."""
    result = {}
    for place in PLACES[group]:
        for module in pkgutil.iter_modules(importlib.import_module(place).__path__):
            result.setdefault(module.name, f"{place}.{module.name}")
    return result


def registered(group: str) -> set[str]:
    """Returns the names among `paths` of files that are a Part."""
    names = set()
    for name, path in paths(group).items():
        if not missing_names(group, importlib.import_module(path)):
            names.add(name)
    return names
