"""Configs: load, override, print and compare them; the keys that follow from others."""

import os
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from ml_collections import ConfigDict

from bert_jax import checks
from bert_jax.checks import value_of
from bert_jax.configs import base as base_config
from bert_jax.errors import BadInput, one_line
from bert_jax.registry import GROUPS, add_folders, module_folders, part_of, running
from bert_jax.storage import json_file, remote

# Keys that say how translations are decoded and scored in evaluations; training does not depend on them.
DECODING = (
    "objective.beams",
    "objective.length_penalty",
    "objective.length_rule",
    "task.extra_pieces",
    "task.tokenize",
    "task.lowercase",
)
STARTS = ("init_from", "continue_from")  # keys that say where a run starts
# Rate of fine-tuning times width: that of BERT-base. Adam's best rates are as 1 / width (arXiv:2203.03466, table 3).
FINE_TUNING = 5e-5 * 768
SHIPPED = Path(base_config.__file__).parent
NAMES = tuple(f"{group}.name" for group in GROUPS)
MAX_STEPS = base_config.MAX_STEPS
kept_checkpoints = base_config.kept_checkpoints
# What a file with anything in place of a value may raise.
ODD = (AttributeError, KeyError, OverflowError, RecursionError, TypeError, ValueError)


class Phase(NamedTuple):
    """A phase of a run, with its shape as in `config.phases`."""

    name: str
    number: int
    first: int  # its first step
    stop: int  # the step after its last one
    length: int
    batch: int
    keys: ConfigDict  # all keys of the phase, with those of its task and model
    # number of the first phase with rows of this shape: the later ones go on in its text
    text: int = 0
    # (steps, batch, mixture) of the phases from that one on with rows of this shape, before this phase
    before: tuple = ()
    mixture: str = ""  # of the store's sources, see data/mixture.py


class Schedule(NamedTuple):
    """A schedule of the learning rate, see optimizer.py."""

    group: str  # of its keys: `schedule`, or phases.NAME
    name: str  # of SCHEDULES in configs/base.py
    peak: float  # the highest rate
    warmup: int  # steps
    decay: int  # steps; 0: all after the warm-up, and with `linear` and `root` all
    end: float  # share of the peak
    phases: list[Phase]  # in which it lasts

    @property
    def first(self) -> int:
        return self.phases[0].first

    @property
    def stop(self) -> int:
        return self.phases[-1].stop


def phases(config: ConfigDict) -> list[Phase]:
    """Returns the phases of a run, in the order they run."""
    result = []
    first = 0
    texts = {}  # (number, before) of the next phase, by the shape of rows
    for number, name in enumerate(config.phase_order):
        keys = config.phases[name]
        stop = first + keys.steps
        mixture = keys.get("mixture") or config.task.get("mixture", "")
        shape = keys.length, keys.get("max_packed"), bool(mixture)
        text, before = texts.get(shape, (number, ()))
        shapes = keys.length, keys.batch, keys
        phase = Phase(name, number, first, stop, *shapes, text, before, mixture)
        texts[shape] = text, (*before, (keys.steps, keys.batch, mixture))
        result.append(phase)
        first = stop
    return result


def choose_phases(config: ConfigDict, name: str | None) -> list[Phase]:
    """Returns all phases, or only the named one. Raises BadInput if no phase has that name."""
    chosen = [phase for phase in phases(config) if name in (None, phase.name)]
    if not chosen:
        raise BadInput(f"--phase {name}: expected one of {', '.join(config.phase_order)}")
    return chosen


def longest_row(config: ConfigDict) -> int:
    """Returns the tokens that a row of the model may have: `model.max_length`, or those of the longest phase."""
    return config.model.get("max_length") or max(phase.length for phase in phases(config))


def of_phase(config: ConfigDict, phase: Phase) -> ConfigDict:
    """Returns the config of a phase: keys of the model that the phase has, too, have its values, unless these are 0."""
    config = config.copy_and_resolve_references()
    for name in part_of(config, "model").PHASE_DEFAULTS:
        if phase.keys[name]:
            config.model[name] = phase.keys[name]
    return config


def resolve_model(config: ConfigDict) -> ConfigDict:
    """Returns a copy of the config with the size of the feed-forward layers, four times the width, where
    `model.feed_forward` is 0. A saved config keeps the 0, so that the size follows an override of the width."""
    config = config.copy_and_resolve_references()
    if config.model.get("feed_forward") == 0:
        config.model.feed_forward = 4 * config.model.get("width", 0)
    return config


def peak_rate(config: ConfigDict) -> float:
    """Returns the highest learning rate of a config: its key, for -1 FINE_TUNING / width, or for 0 with `inverse_sqrt`
    (width x warm-up)^-0.5 (arXiv:1706.03762, section 5.3)."""
    rate = config.optimizer.learning_rate
    if rate == -1:
        rate = FINE_TUNING / config.model.width
    if config.schedule.name == "inverse_sqrt" and not rate:
        rate = (config.model.width * max(1, config.schedule.warmup)) ** -0.5
    return rate


def schedules(config: ConfigDict) -> list[Schedule]:
    """Returns the schedules of a run, in order: that of the group `schedule`, unless the first phase has its own, and
    those that phases begin."""
    peak = peak_rate(config)
    keys = config.schedule
    result = [Schedule("schedule", keys.name, peak, keys.warmup, keys.decay, keys.end, [])]
    for phase in phases(config):
        keys = phase.keys
        if keys.schedule:
            shape = keys.learning_rate or peak, keys.warmup, keys.decay, keys.end
            result.append(Schedule(f"phases.{phase.name}", keys.schedule, *shape, []))
        result[-1].phases.append(phase)
    return [schedule for schedule in result if schedule.phases]


def phase_at(config: ConfigDict, step: int) -> Phase:
    """Returns the phase of the last one of `step` steps, or the first phase."""
    return [phase for phase in phases(config) if phase.first < max(1, step)][-1]


def at_step(config: ConfigDict, step: int) -> ConfigDict:
    """Returns the config of the phase of a run's model after `step` steps."""
    return of_phase(config, phase_at(config, step))


def total_steps(config: ConfigDict) -> int:
    return phases(config)[-1].stop


def steps_by_phase(config: ConfigDict, step: int) -> dict[str, int]:
    """Returns {phase: number of its steps among the first `step` steps}."""
    return {phase.name: max(0, min(step, phase.stop) - phase.first) for phase in phases(config)}


def load(
    name: str, overrides: list[str] = (), log: Callable[[str], None] = lambda line: None
) -> ConfigDict:
    """Returns the validated and locked config of `name` with `a.b=value` overrides; raises BadInput.

    name: a name in configs/ (`demo`), a Python file, a run, or a saved config.json; the last two may be in a bucket.
    log: gets a line for each key that follows from the overrides, see `adapt`.
    """
    config = find(name)
    before = config.copy_and_resolve_references()
    apply(config, overrides)
    if overrides:
        check_values(config)
        adapt(config, before, overrides, log)
    check(config)
    for key in ("store", "batches", "tokenizer.path", *STARTS):
        assign(config, key, os.path.expanduser(value_of(config, key)))
    if config.tokenizer.kind == "bytes" and not config.tokenizer.path:
        config.tokenizer.size = 261  # 256 bytes and five special tokens
    config.lock()
    return config


def find(name: str) -> ConfigDict:
    """Returns the config of a name, a file or an address, see `load`; raises BadInput.

    What follows a colon, as in configs/glue.py:sst2, is the argument of the file's function `get_config`.
    """
    if remote.is_address(name):
        return read_remote(name if name.endswith(".json") else f"{name}/config.json")
    if name.endswith(".json"):
        return read(Path(name))
    if (Path(name) / "run.json").is_file() and not is_shipped(name):
        return read(Path(name) / "config.json")
    name, *argument = name.split(":")
    return execute(file_of(name), argument)


def is_shipped(name: str) -> bool:
    return name.isidentifier() and (SHIPPED / f"{name}.py").is_file()


def file_of(name: str) -> Path:
    """Returns the file of a config, given its path or its name in configs/; raises BadInput."""
    if is_shipped(name):
        return SHIPPED / f"{name}.py"
    if name.endswith(".py") and Path(name).is_file():
        return Path(name)
    names = ", ".join(sorted(path.stem for path in SHIPPED.glob("[!_]*.py")))
    raise BadInput(
        f"--config {name}: no such config; expected one of {names}, or a path to a .py file"
    )


def arguments(name: str) -> list[str]:
    """Returns the arguments of a config's function `get_config`: the keys of TASKS in its file. Raises BadInput."""
    path = file_of(name)
    with running(path) as module:
        if "TASKS" not in module:
            raise BadInput(f"--config {name}:all: {path} has no TASKS")
        return list(module["TASKS"])


def execute(path: Path, argument: list[str]) -> ConfigDict:
    """Returns the config of a Python file; raises BadInput with the line of any error in the file."""
    try:
        with running(path) as module:
            if "get_config" not in module:
                raise TypeError("has no function get_config")
            config = module["get_config"](*argument)
            if not isinstance(config, ConfigDict):
                raise TypeError(f"get_config() gives {config!r}, not a ConfigDict")
            flatten(config)  # raises RecursionError for a config that contains itself
            # Adds the keys that a phase lacks.
            base_config.use(config, model=config.model.name, task=config.task.name)
            folders = module_folders(config)
        add_folders(folders)
        return config
    except (Exception, SystemExit) as error:
        frames = traceback.extract_tb(error.__traceback__)
        lines = [frame.lineno for frame in frames if frame.filename == str(path)]
        position = f"{path}:{lines[-1]}" if lines else str(path)
        raise BadInput(f"{position}: {checks.explain(error, flatten(base()))}") from None


def base(config: ConfigDict | dict = ()) -> ConfigDict:
    """Returns the default config, of the model, objective, task and optimizer that `config` names."""
    values = flatten(config)
    names = {name.removesuffix(".name"): values[name] for name in NAMES if name in values}
    return base_config.get_config(**names)


def read_remote(name: str) -> ConfigDict:
    """Reads a config in a workdir in a bucket, like `read`; `tokenizer.path` becomes that of the workdir."""
    with tempfile.TemporaryDirectory() as directory:
        copy = Path(directory) / "config.json"
        with remote.explain(f"--config {name}"), remote.naming(copy, name):
            bucket, file = remote.split_address(name)
            copy.write_bytes(bucket.read(file))
            config = read(copy)
            # A path that is itself an address is replaced, too: no request is sent to another bucket.
            take_tokenizer(config, bucket.address, bucket.exists)
    return config


def read(path: Path) -> ConfigDict:
    """Reads a config that `save` wrote; raises BadInput. The file is data: nothing in it is executed, but the modules
    that `model.name`, `objective.name`, `task.name` and `optimizer.name` name are imported, also from the folders in
    run.json beside it. Preparing a store and training also call the functions that `corpus.map` and `evaluate.metric`
    name.

    Keys that the file lacks, because they are newer, take their defaults.
    """
    directory = Path(path).absolute().parent
    values = json_file.read(path)
    values.pop("counts", None)  # of `config --json`
    key = "phases"
    try:
        if (directory / "run.json").is_file():
            add_folders(json_file.read(directory / "run.json").get("module_folders", ()))
        config = base(values)
        defaults = config.phases.main.to_dict()
        phases = {name: defaults | keys for name, keys in values["phases"].items()}
        config.phases = ConfigDict(phases)
        for key, value in flatten(values | {"phases": phases}).items():
            assign(config, key, tuple(value) if isinstance(value, list) else value)
    except ODD as error:
        raise BadInput(f"{path}: not a config ({key}: {one_line(error)})") from None
    take_tokenizer(config, directory, lambda name: (directory / name).is_file())
    return config


def take_tokenizer(config: ConfigDict, workdir: Path | str, exists: Callable[[str], bool]) -> None:
    """Sets a `tokenizer.path` that does not exist to the file in the workdir, which was moved or copied after it was
    saved.

    exists: returns whether the workdir has a file of a name.
    """
    path = config.tokenizer.path
    name = f"tokenizer/{Path(path).name}"
    if path and not os.path.exists(path) and exists(name):
        config.tokenizer.path = f"{workdir}/{name}"


def save(config: ConfigDict, path: Path) -> None:
    """Writes a config as JSON, atomically."""
    json_file.write(path, config.to_dict(), sync=False, sort_keys=True)


def flatten(tree, prefix: str = "") -> dict:
    """Returns {'a.b': value} for nested dicts or ConfigDicts, sorted by key. An empty dict is a value."""
    result = {}
    for key in sorted(tree):
        value = tree[key]
        if isinstance(value, dict | ConfigDict) and value:
            result |= flatten(value, f"{prefix}{key}.")
        else:
            result[f"{prefix}{key}"] = value
    return result


def apply(config: ConfigDict, overrides: list[str]) -> None:
    """Sets keys by overrides `a.b=value`, each text parsed as the type of the key's value.

    The names of model, objective, task and optimizer come first: they decide which other keys there are, see
    `base.use`.
    """
    for override in sorted(overrides, key=lambda text: text.partition("=")[0] not in NAMES):
        key, equals, text = override.partition("=")
        if not equals:
            raise BadInput(f"--config.{override}: expected --config.KEY=VALUE")
        value = checks.parse(key, text, lookup(config, key))
        if key in NAMES:
            base_config.use(config, **{key.removesuffix(".name"): value})
        else:
            assign(config, key, value)


def lookup(config: ConfigDict, key: str):
    """Returns the value of a key `a.b`; raises BadInput, with the closest key, if there is no such key."""
    values = flatten(config)
    if key in values:
        return values[key]
    if any(name.startswith(key + ".") for name in values):
        raise BadInput(f"--config.{key}: a group of keys, not a key; see bert-jax config")
    raise BadInput(f"--config.{key}: no such key{checks.suggestion(key, values)}")


def assign(config: ConfigDict, key: str, value) -> None:
    *groups, last = key.split(".")
    for group in groups:
        config = config[group]
    if last not in config or value is None:  # ConfigDict would accept None for any type
        raise KeyError("no such key, or null")
    config[last] = value


def check_values(config: ConfigDict) -> None:
    """Raises BadInput for the first key that is unknown, has the wrong type, or a value outside of its range."""
    checks.check_types(config, flatten(config), flatten(base(config)))
    base_config.check_values(config)


def check(config: ConfigDict) -> None:
    """Raises BadInput for the first key that is unknown, has the wrong type, or has an invalid value."""
    check_values(config)
    base_config.check(config)
    for group in GROUPS:
        part_of(config, group).check(config)


# --- Keys that follow from others -----------------------------------------------------------------


def adapt(
    config: ConfigDict, before: ConfigDict, overrides: list[str], log: Callable[[str], None]
) -> None:
    """Sets the keys that follow from overridden ones, such as the steps, unless they are overridden, too.

    before: the config without the overrides, or with other steps.
    log: gets a line for each key.
    """
    asked = config.copy_and_resolve_references()
    base_config.follow(config, before, overridden(overrides))
    for key, (was, now) in differences(asked, config).items():
        log(f"config.{key}={now} instead of {was}: follows from other keys")


def overridden(overrides: list[str]) -> set[str]:
    """Returns the keys of overrides `a.b=value`."""
    return {override.partition("=")[0] for override in overrides}


def differences(old: ConfigDict, new: ConfigDict) -> dict[str, tuple]:
    """Returns {key: (old value, new value)} of every key that differs, see `resolve_model`; the value of a missing key
    is None."""
    before = flatten(resolve_model(old))
    after = flatten(resolve_model(new))
    return {
        key: (before.get(key), after.get(key))
        for key in sorted(before | after)
        if before.get(key) != after.get(key)
    }


def changes(config: ConfigDict) -> dict[str, tuple]:
    """Returns {key: (default, value)} of the keys that differ from their defaults; without a default it is None."""
    defaults = flatten(base(config))
    for name in NAMES:
        defaults[name] = value_of(base(), name)
    return {
        key: (defaults.get(key), value)
        for key, value in flatten(config).items()
        if defaults.get(key) != value
    }
