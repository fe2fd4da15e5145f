"""Finding, overriding, printing and comparing configs; resume rules."""

import ast
import difflib
import hashlib
import importlib
import importlib.util
import itertools
import json
import os
import runpy
import tempfile
import traceback
from pathlib import Path
from typing import NamedTuple

from ml_collections import ConfigDict

from bert_jax import config_checks
from bert_jax.config_checks import listed, sources
from bert_jax.errors import BadInput
from bert_jax.storage import atomic, remote

# What a resumed run may change; `store` and `batches` because their content is compared by its fingerprint.
CHANGEABLE = ("mesh", "train", "guard", "log", "profile", "evaluate", "checkpoint", "timeouts")
CHANGEABLE += ("store", "verify_store", "batches", "compilation_cache", "distributed")
CHANGEABLE += ("expected_loss",)
CHANGEABLE += ("model.attention", "corpus.workers")


class Phase(NamedTuple):
    """A phase and its place in the run: steps `first` to `last` - 1."""

    name: str
    number: int
    first: int
    last: int
    length: int
    batch: int
    max_predictions: int
    max_packed: int


def phases(config: ConfigDict) -> list[Phase]:
    """The phases of a run, in the order they run."""
    result, first = [], 0
    for number, name in enumerate(config.phase_order):
        keys = config.phases[name]
        last = first + keys.steps
        shape = keys.length, keys.batch, keys.max_predictions, keys.max_packed
        result.append(Phase(name, number, first, last, *shape))
        first = last
    return result


def choose_phases(config: ConfigDict, name: str | None) -> list[Phase]:
    """All phases, or the one of this name. Raises BadInput where there is none."""
    chosen = [phase for phase in phases(config) if name in (None, phase.name)]
    if not chosen:
        raise BadInput(f"--phase {name}: the config has {', '.join(config.phase_order)}")
    return chosen


def total_steps(config: ConfigDict) -> int:
    return sum(config.phases[name].steps for name in config.phase_order)


def formats(config: ConfigDict) -> list[str]:
    """`corpus.format`, of each source."""
    forms = listed(config.corpus.format)
    return forms * len(sources(config)) if len(forms) == 1 else forms


def load(name: str, overrides: list[str] = ()) -> ConfigDict:
    """The checked config of a name (`demo`), a Python file or a saved config.json, after `a.b=value` overrides."""
    config = find(name)
    for override in overrides:
        apply(config, override)
    keys = {override.partition("=")[0] for override in overrides}
    if "expected_loss" not in keys and not all(map(may_change, keys)):
        config.expected_loss = ()  # they were measured without these overrides
    check(config)
    config.store = os.path.expanduser(config.store)
    config.batches = os.path.expanduser(config.batches)
    config.tokenizer.path = os.path.expanduser(config.tokenizer.path)
    config.lock()
    return config


def find(name: str) -> ConfigDict:
    path = Path(name)
    if path.suffix == ".json":
        return read_there(name) if remote.is_address(name) else read(path)
    if path.suffix == ".py":
        if not path.is_file():
            raise BadInput(f"--config {name}: no such file")
        return execute(path)
    module = f"bert_jax.configs.{name}"
    if not name.isidentifier() or importlib.util.find_spec(module) is None:
        known = Path(importlib.import_module("bert_jax.configs").__file__).parent.glob("[!_]*.py")
        names = ", ".join(sorted(path.stem for path in known))
        raise BadInput(
            f"--config {name}: no such config; there are {names}, or a path to a .py file"
        )
    module = importlib.import_module(module)
    return with_expected_loss(module.get_config(), vars(module))


def with_expected_loss(config: ConfigDict, module: dict) -> ConfigDict:
    """The config with the EXPECTED_LOSS of its own file; those of a file that it builds on are of another run."""
    config.expected_loss = tuple(itertools.chain(*module.get("EXPECTED_LOSS", ())))
    return config


def execute(path: Path) -> ConfigDict:
    """The config of a Python file; whatever is wrong with the file is said with its line."""
    try:
        module = runpy.run_path(str(path))
        config = module["get_config"]()
        if not isinstance(config, ConfigDict):
            raise TypeError(f"get_config() gives {config!r}, not a ConfigDict")
        flatten(config)  # one that holds itself never ends
        return with_expected_loss(config, module)
    except (Exception, SystemExit) as error:
        frames = traceback.extract_tb(error.__traceback__)
        lines = [frame.lineno for frame in frames if frame.filename == str(path)]
        place = f"{path}:{lines[-1]}" if lines else str(path)
        # ConfigDict goes on with the whole config.
        reason = str(error).partition(" and cannot be added")[0].strip("'\"").splitlines()[:1]
        raise BadInput(f"{place}: {type(error).__name__}: {''.join(reason)[:300]}") from None


def base() -> ConfigDict:
    return importlib.import_module("bert_jax.configs.base").get_config()


def read_there(name: str) -> ConfigDict:
    """Like `read`, of a config at an address, whose vocabulary is that of its workdir."""
    place, _, file = name.rpartition("/")
    with tempfile.TemporaryDirectory() as directory:
        copy = Path(directory) / file
        with remote.explain(f"--config {name}"):
            copy.write_bytes(remote.Directory(place).read(file))
        with remote.naming(copy.parent, place):
            config = read(copy)
        own = f"tokenizer/{Path(config.tokenizer.path).name}"
        with remote.explain(f"--config {name}"):
            is_elsewhere = config.tokenizer.path and not os.path.exists(config.tokenizer.path)
            if is_elsewhere and remote.Directory(place).exists(own):
                # The workdir was copied there since; or they are the words of another address, which is not asked.
                config.tokenizer.path = f"{place}/{own}"
        return config


def read(path: Path) -> ConfigDict:
    """A config that `save` wrote. It is data: nothing in it is executed."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise BadInput(f"{path}: not a readable config ({error})") from None
    if not isinstance(values, dict):
        raise BadInput(f"{path}: not a config (no JSON object)")
    config, key = base(), ""
    try:
        nulls = [name for name, value in flatten(values).items() if value is None]
        key = (nulls or ["phases"])[0]
        if nulls:  # which ConfigDict takes for any type
            raise TypeError("null is the value of no key")
        usual = config.phases.main.to_dict()
        # Keys that a run saved before they were there has as they are by default.
        config.phases = ConfigDict(
            {name: usual | keys for name, keys in values.pop("phases").items()}
        )
        for key, value in flatten(values).items():
            assign(config, key, tuple(value) if isinstance(value, list) else value)
    except (
        AttributeError,
        KeyError,
        OverflowError,
        RecursionError,
        TypeError,
        ValueError,
    ) as error:
        raise BadInput(f"{path}: not a config ({key}: {error})") from None
    own = Path(path).absolute().parent / "tokenizer" / Path(config.tokenizer.path).name
    if config.tokenizer.path and not os.path.exists(config.tokenizer.path) and own.is_file():
        config.tokenizer.path = str(own)  # the workdir was moved since
    return config


def save(config: ConfigDict, path: Path) -> None:
    """Replaces the file in one go."""
    text = json.dumps(config.to_dict(), indent=2, sort_keys=True) + "\n"
    atomic.write(Path(path), text, sync=False)


def flatten(tree, prefix: str = "") -> dict:
    """{'a.b': value} of nested dicts or ConfigDicts, sorted by key; an empty one is a value."""
    result = {}
    for key in sorted(tree):
        value = tree[key]
        if isinstance(value, dict | ConfigDict) and value:
            result |= flatten(value, f"{prefix}{key}.")
        else:
            result[f"{prefix}{key}"] = value
    return result


def apply(config: ConfigDict, override: str) -> None:
    """Sets one `a.b=value`, read as the type the key has."""
    key, equals, text = override.partition("=")
    if not equals:
        raise BadInput(f"--config.{override}: expected --config.KEY=VALUE")
    assign(config, key, parse(key, text, lookup(config, key)))


def lookup(config: ConfigDict, key: str):
    known = flatten(config)
    if key in known:
        return known[key]
    if any(name.startswith(key + ".") for name in known):
        raise BadInput(f"--config.{key}: a group of keys, not a key; see bert-jax config")
    close = difflib.get_close_matches(key, known, n=1)
    # `--config.width=64`: the last part alone is the commonest slip.
    close = close or [name for name in known if name.rsplit(".", 1)[-1] == key]
    hint = f"; did you mean {close[0]}?" if close else "; see bert-jax config for all keys"
    raise BadInput(f"--config.{key}: no such key{hint}")


def parse(key: str, text: str, default):
    """`text` as the type of `default`."""
    kind = type(default)
    if kind is str:
        return text
    if kind is bool and text.lower() in ("true", "false", "1", "0"):
        return text.lower() in ("true", "1")
    try:
        value = ast.literal_eval(text)
        if kind is tuple:
            return tuple(value) if isinstance(value, tuple | list) else (value,)
        if kind is float and type(value) in (int, float):
            return float(value)
        if kind is int and type(value) in (int, float) and int(value) == value:
            return int(value)
    except (ValueError, SyntaxError, OverflowError):
        if kind is tuple:
            return tuple(part.strip() for part in text.split(","))
    raise BadInput(f"--config.{key}={text}: expected {kind.__name__}, such as {default!r}")


def assign(config: ConfigDict, key: str, value) -> None:
    *groups, last = key.split(".")
    for group in groups:
        config = config[group]
    if last not in config:
        raise KeyError(f"no such key: {key}")
    config[last] = value


def check(config: ConfigDict) -> None:
    """Raises BadInput at the first key that is unknown, of a wrong type, or cannot work."""
    config_checks.check(config, flatten(config), flatten(base()))


def differences(old: ConfigDict, new: ConfigDict) -> dict[str, tuple]:
    """{key: (old value, new value)} of every key that differs; a missing one is None."""
    a, b = flatten(old), flatten(new)
    return {key: (a.get(key), b.get(key)) for key in sorted(a | b) if a.get(key) != b.get(key)}


def spelled_out(config: ConfigDict) -> ConfigDict:
    """The config with the hidden width that a 0 stands for: other formats spell it out, and so do imports."""
    config = config.copy_and_resolve_references()
    with config.unlocked():
        config.model.feed_forward = config.model.feed_forward or 4 * config.model.width
    return config


def may_change(key: str) -> bool:
    """Whether a resumed run may have another value: nothing that is learnt depends on it."""
    return key in CHANGEABLE or key.partition(".")[0] in CHANGEABLE


def is_of_model(key: str) -> bool:
    """Whether imported parameters would mean something else with another value."""
    group, _, name = key.partition(".")
    free = ("dropout", "attention_dropout", "initializer")
    fixed = "objective.name", "objective.pair_task"
    return (group == "model" and name not in free) or key in fixed


def refusals(old: ConfigDict, new: ConfigDict, step: int) -> list[str]:
    """The keys in which a run at `step` may not differ from its saved config: all but cadence, place and future."""
    before, after = phases(old), phases(new)
    started = {phase.name for phase in before if phase.first < step}
    # The steps of the phase that the run is in, or has just ended with, may change; not to fewer than are done.
    unfinished = {phase.name for phase in before if phase.last > step or phase == before[-1]}
    unfinished &= {phase.name for phase in after if phase.last >= step}
    changes = differences(*map(spelled_out, (old, new)))
    refused = []
    for key, (was, now) in changes.items():
        group, _, rest = key.partition(".")
        if may_change(key) or (step == 0 and not is_of_model(key)):
            continue
        if group == "phases":
            name, _, what = rest.partition(".")
            if name not in started or (what == "steps" and name in unfinished):
                continue
        if group == "phase_order" and was[: len(started)] == now[: len(started)]:
            continue
        refused.append(f"config.{key}: {was!r} in the run, {now!r} now")
    return refused


def digest(config: ConfigDict) -> str:
    """SHA-256, in hex, of all that a run's parameters depend on: without what may change at a restart, without the
    phases, of which those to come may, and without the place of a vocabulary."""
    kept = {
        key: value
        for key, value in flatten(spelled_out(config)).items()
        if not may_change(key)
        and key.partition(".")[0] not in ("phases", "phase_order")
        and key != "tokenizer.path"
    }
    return hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()


def describe(config: ConfigDict) -> str:
    """Every resolved key, one a line; those that differ from base are marked with what base has."""
    changed = differences(base(), config)
    lines = []
    for key, value in flatten(config).items():
        note = f"    # base: {changed[key][0]!r}" if key in changed else ""
        lines.append(f"{key} = {value!r}{note}")
    return "\n".join(lines)
