"""Checks types, choices and ranges of the keys of a config, and parses overrides."""

import ast
import contextlib
import difflib
import functools
import math
import operator
import re
from collections.abc import Iterable

from ml_collections import ConfigDict

from bert_jax.errors import BadInput, one_line
from bert_jax.registry import GROUPS

MAIN = "phases.main."
# A message of ConfigDict about an unknown key or group.
UNKNOWN = re.compile(r"""Key "(\w+)" does not exist|^["'\\]+(\w+)[\\']""")
# {name of a key in other programs: the last part of its name here}
SHORT_NAMES = {
    "lr": "learning_rate",
    "batch_size": "batch",
    "warmup_steps": "warmup",
    "hidden_size": "width",
    "num_layers": "layers",
    "num_heads": "heads",
}


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
    """Returns whether documents are held out by the hash of their text, and not by their position."""
    return config.corpus.heldout_by == "hash" and not heldout_sources(config)


def heldout_sources(config: ConfigDict) -> list[str]:
    """Returns the parts of `corpus.heldout_source`."""
    return [part for part in split_list(config.corpus.heldout_source) if part]
