"""Finds the modules that a config names, and checks types, choices and ranges of its keys."""

import ast
import contextlib
import difflib
import functools
import importlib
import math
import operator
import pkgutil
import re
import runpy
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import ModuleType

from ml_collections import ConfigDict

from bert_jax.errors import BadInput, one_line

GROUPS = ("model", "objective", "task", "optimizer")  # whose keys are in the modules that they name
# {group: the packages in which the module of a name is looked up, one after the other}
PLACES = {
    "model": ("bert_jax.models",),
    "objective": ("bert_jax.objectives",),
    "task": ("bert_jax.tasks", "bert_jax.tasks.text"),
    "optimizer": ("bert_jax.optimizers",),
}
NEEDED = ("DEFAULTS", "check", "make")  # of such a module
MAIN = "phases.main."
# Messages of ConfigDict: an unknown key or group, and a value of another type.
UNKNOWN = re.compile(r"""Key "(\w+)" does not exist|^["'\\]+(\w+)[\\']""")
MISTYPED = re.compile(r"field '(\w+)'.*?\. (.*) is of original .* type <class '(\w+)'>", re.S)
# {name of a key in other programs: the last part of its name here}
SHORT_NAMES = {
    "lr": "learning_rate",
    "batch_size": "batch",
    "warmup_steps": "warmup",
    "hidden_size": "width",
    "num_layers": "layers",
    "num_heads": "heads",
}


@contextlib.contextmanager
def running(path: Path) -> Iterator[dict]:
    """Runs a Python file, and yields its names. Within the context, it can import the files beside it; afterwards,
    neither `sys.path` nor `sys.modules` has them."""
    directory = path.absolute().parent
    before = [*sys.path], {*sys.modules}
    sys.path.append(str(directory))  # last, so that it hides no library
    try:
        yield runpy.run_path(str(path))
    finally:
        sys.path[:], modules = before
        for top in {name.partition(".")[0] for name in sys.modules} - modules:
            module = sys.modules.get(top)
            # A namespace package has no file.
            places = *getattr(module, "__path__", ()), getattr(module, "__file__", None) or ""
            if directory in (Path(place).parent for place in places):
                for name in [*sys.modules]:
                    if name.partition(".")[0] == top:
                        del sys.modules[name]


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
    missing = [item for item in NEEDED if not hasattr(module, item)]
    if not missing:
        return module
    if "." in name:
        raise BadInput(f"config.{group}.name={name!r}: {path} has no {', '.join(missing)}")
    raise unknown(group, name)  # a file that others share


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
            if all(hasattr(module, item) for item in NEEDED):
                names.add(name)
    return names


# --- Parts of a module's check(config) ------------------------------------------------------------


def require(condition: bool, key: str, config: ConfigDict, hint: str) -> None:
    """Raises BadInput with the key `a.b`, its value and the hint unless the condition holds."""
    if not condition:
        raise BadInput(f"config.{key}={value_of(config, key)!r}: {hint}")


def check_keys(config: ConfigDict, choices=(), shares=(), at_least_one=(), not_negative=()) -> None:
    """Raises BadInput for the first of these keys that has a value outside of its choices or range.

    choices: {key: its values}. The others are keys.
    """
    for key, names in dict(choices).items():
        require(value_of(config, key) in names, key, config, f"expected one of {', '.join(names)}")
    for key in shares:
        require(0 <= value_of(config, key) < 1, key, config, "expected a share in [0, 1)")
    for key in at_least_one:
        require(value_of(config, key) >= 1, key, config, "expected at least 1")
    for key in not_negative:
        require(value_of(config, key) >= 0, key, config, "expected 0 or more")


def value_of(config: ConfigDict, key: str):
    """Returns the value of a key `a.b`."""
    return functools.reduce(operator.getitem, key.split("."), config)


def check_types(config: ConfigDict, values: dict, defaults: dict) -> None:
    """Raises BadInput for the first key that is unknown or missing, has the wrong type or is not finite.

    values, defaults: {'a.b': value} of the config, and of base with the modules that the config names. Every phase has
    the keys of `phases.main`.
    """
    main = {key[len(MAIN) :]: value for key, value in defaults.items() if key.startswith(MAIN)}
    expected = {key: value for key, value in defaults.items() if not key.startswith(MAIN)}
    for name in config.phases:
        expected |= {f"phases.{name}.{key}": value for key, value in main.items()}
    for key, value in values.items():
        if key not in expected:
            names = ", ".join(f"{group}.name={defaults[f'{group}.name']}" for group in GROUPS)
            raise BadInput(f"config.{key}: no such key with {names}")
        required = type(expected[key])
        if type(value) is not required:
            raise BadInput(f"config.{key}={value!r}: expected {required.__name__}")
        if required is float and not math.isfinite(value):
            raise BadInput(f"config.{key}={value!r}: expected a finite number")
    if missing := [key for key in expected if key not in values]:
        raise BadInput(f"config.{missing[0]}: missing")


NUMBERS = "profile.steps", "task.columns"  # other tuples have texts, also 0,1


def parse(key: str, text: str, default):
    """Returns `text` parsed as the type of `default`; raises BadInput if it is not of that type."""
    expected = type(default)
    if expected is str:
        return text
    if expected is tuple:
        return parse_tuple(key, text)
    if expected is bool and text.lower() in ("true", "false", "1", "0"):
        return text.lower() in ("true", "1")
    with contextlib.suppress(ValueError, SyntaxError, OverflowError):
        value = ast.literal_eval(text)
        if type(value) in (int, float) and expected(value) == value:
            return expected(value)
    raise BadInput(f"--config.{key}={text}: expected {expected.__name__}, such as {default!r}")


def parse_tuple(key: str, text: str) -> tuple:
    """Returns the parts of a tuple: numbers for the keys of NUMBERS, otherwise texts, which need no quotes."""
    with contextlib.suppress(ValueError, SyntaxError, OverflowError):
        value = ast.literal_eval(text)
        if not isinstance(value, tuple | list):
            value = [value]
        if key in NUMBERS or all(isinstance(part, str) for part in value):
            return tuple(value)
    if brackets := re.fullmatch(r"[(\[]([^()\[\]]*)[)\]]", text):
        text = brackets[1]
    return tuple(filter(None, split_list(text)))


def explain(error: BaseException, names: Iterable[str]) -> str:
    """Returns what went wrong in a config file, in one line. names: all keys, `a.b`."""
    text = str(error)
    match = UNKNOWN.search(text)
    if match and isinstance(error, AttributeError | KeyError):
        key = match[match.lastindex]
        return f"no such key: {key}{suggestion(key, names)}"
    if match := MISTYPED.search(text):
        return " ".join("{}={:.99}: expected {}".format(*match.groups()).split())
    # ConfigDict's other messages continue with the whole config.
    return one_line(error, 300)


def suggestion(key: str, names: Iterable[str]) -> str:
    """Returns what an error says about the closest of the names, `a.b`, to a key that does not exist."""
    group, dot, last = key.rpartition(".")
    last = SHORT_NAMES.get(last, last)
    names = {*names, *(name.rpartition(".")[0] for name in names)} - {""}  # with the groups
    parts = {name: name.rpartition(".")[2] for name in sorted(names)}
    likely = difflib.get_close_matches(last, parts.values(), 1)
    # The most common slip is a key without its group: `--config.width=64`.
    same = [name for name in parts if parts[name] in likely]
    close = difflib.get_close_matches(f"{group}{dot}{last}", same, 2, 0)
    if not close:
        return "; see bert-jax config for all keys"
    return f"; did you mean {' or '.join(close)}?"


def split_list(text: str) -> list[str]:
    """Returns the parts between commas."""
    return [part.strip() for part in text.split(",")]


# A part of `corpus.source`: its name, if any, and its path.
NAMED = re.compile(r"(?:([\w-]+)=)?(.*)")


def named_sources(config: ConfigDict) -> list[tuple[str, str]]:
    """Returns (name, path) of each part of `corpus.source`; a part may have no name, ''."""
    parts = filter(None, split_list(config.corpus.source))
    return [(match[1] or "", match[2]) for match in map(NAMED.match, parts)]


def source_names(config: ConfigDict) -> list[str]:
    """Returns the name of each part of `corpus.source`, '' where it has none."""
    return [name for name, _ in named_sources(config)]


def sources(config: ConfigDict) -> list[str]:
    """Returns the parts of `corpus.source` without their names, and after them those of `corpus.heldout_source`."""
    return [path for _, path in named_sources(config)] + heldout_sources(config)


def is_heldout_by_hash(config: ConfigDict) -> bool:
    """Returns whether documents are held out by the hash of their text, and not by their place."""
    return config.corpus.heldout_by == "hash" and not heldout_sources(config)


def heldout_sources(config: ConfigDict) -> list[str]:
    """Returns the parts of `corpus.heldout_source`."""
    return [part for part in split_list(config.corpus.heldout_source) if part]
