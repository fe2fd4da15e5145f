"""Finding, overriding, checking, printing and comparing configs."""

import ast
import difflib
import importlib
import importlib.util
import json
import math
import os
import runpy
import traceback
from pathlib import Path
from typing import NamedTuple

from ml_collections import ConfigDict

from bert_jax.errors import BadInput

CHOICES = {
    "dtype": ("auto", "float32", "bfloat16"),
    "gradient_dtype": ("float32", "bfloat16"),
    "corpus.sentences": ("auto", "lines", "rules"),
    "tokenizer.kind": ("wordpiece", "unigram", "bpe", "byte_bpe"),
    "model.activation": ("gelu_tanh", "gelu", "relu"),
    "objective.pairs": ("nsp", "sop", "none"),
    "objective.masking": ("token", "whole_word"),
    "optimizer.name": ("adam", "adafactor"),
    "optimizer.moment_dtype": ("float32", "bfloat16"),
    "train.remat": ("none", "attention", "full"),
    "schedule.name": ("linear", "cosine", "inverse_sqrt", "constant"),
}
SHARES = (
    "corpus.heldout",
    "filter.near_duplicates",
    "model.dropout",
    "model.attention_dropout",
    "objective.mask_rate",
    "objective.mask_share",
    "objective.random_share",
    "objective.short_rate",
)
AT_LEAST_ONE = (
    "model.layers",
    "model.width",
    "model.heads",
    "model.positions",
    "model.segments",
    "mesh.fsdp",
    "mesh.tensor",
    "distributed.timeout",
    "train.micro_batches",
    "log.every",
    "checkpoint.every",
    "checkpoint.keep",
    "evaluate.rows",
)
NOT_NEGATIVE = (
    "seed",
    "distributed.processes",
    "corpus.workers",
    "model.feed_forward",
    "schedule.warmup",
    "optimizer.clip",
    "optimizer.weight_decay",
    "checkpoint.keep_every",
    "evaluate.every",
    "evaluate.batch",
    "train.rows_per_chip",
    "tokenizer.sample",
    "filter.document_characters",
    "filter.line_characters",
    "filter.repeats",
)
FORMATS = ("lines", "files", "wiki", "jsonl")
# What a resumed run may change; `store` and `batches` because their content is compared by its fingerprint.
CHANGEABLE = ("mesh", "train", "log", "evaluate", "checkpoint", "store", "compilation_cache")
CHANGEABLE += (
    "corpus.workers",
    "corpus.data_dir",
    "store_hashes",
    "bands",
    "batches",
    "distributed",
)
# What may differ between the processes of a run: where things are on each host.
LOCAL = (
    "store",
    "batches",
    "compilation_cache",
    "corpus.workers",
    "corpus.data_dir",
    "store_hashes",
)


class Phase(NamedTuple):
    """A phase and its place in the run: steps `first` to `last` - 1."""

    name: str
    number: int
    first: int
    last: int
    length: int
    batch: int
    predictions: int
    sequences: int


def phases(config: ConfigDict) -> list[Phase]:
    """The phases of a run, in the order they run."""
    result, first = [], 0
    for number, name in enumerate(config.phase_order):
        keys = config.phases[name]
        last = first + keys.steps
        shape = keys.length, keys.batch, keys.predictions, keys.sequences
        result.append(Phase(name, number, first, last, *shape))
        first = last
    return result


def total_steps(config: ConfigDict) -> int:
    return sum(config.phases[name].steps for name in config.phase_order)


def load(name: str, overrides: list[str] = ()) -> ConfigDict:
    """The checked config of a name (`demo`), a Python file or a saved config.json, after `a.b=value` overrides."""
    config = find(name)
    for override in overrides:
        apply(config, override)
    keys = {override.partition("=")[0] for override in overrides}
    if "bands" not in keys and not all(map(may_change, keys)):
        config.bands = ()  # they were measured without these overrides
    check(config)
    config.store = os.path.expanduser(config.store)
    config.batches = os.path.expanduser(config.batches)
    config.tokenizer.path = os.path.expanduser(config.tokenizer.path)
    config.lock()
    return config


def find(name: str) -> ConfigDict:
    path = Path(name)
    if path.suffix == ".json":
        return read(path)
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
    return with_bands(module.get_config(), vars(module))


def with_bands(config: ConfigDict, module: dict) -> ConfigDict:
    """The config with the BANDS of its own file; those of a file that it builds on are of another run."""
    config.bands = tuple(number for band in module.get("BANDS", ()) for number in band)
    return config


def execute(path: Path) -> ConfigDict:
    """The config of a Python file; whatever is wrong with the file is said with its line."""
    try:
        module = runpy.run_path(str(path))
        config = module["get_config"]()
        if not isinstance(config, ConfigDict):
            raise TypeError(f"get_config() gives {config!r}, not a ConfigDict")
        return with_bands(config, module)
    except (Exception, SystemExit) as error:
        frames = traceback.extract_tb(error.__traceback__)
        lines = [frame.lineno for frame in frames if frame.filename == str(path)]
        place = f"{path}:{lines[-1]}" if lines else str(path)
        # ConfigDict goes on with the whole config.
        reason = str(error).partition(" and cannot be added")[0].strip("'\"").splitlines()[:1]
        raise BadInput(f"{place}: {type(error).__name__}: {''.join(reason)}") from None


def base() -> ConfigDict:
    return importlib.import_module("bert_jax.configs.base").get_config()


def read(path: Path) -> ConfigDict:
    """A config that `save` wrote. It is data: nothing in it is executed."""
    try:
        values = json.loads(Path(path).read_text())
    except (OSError, ValueError) as error:
        raise BadInput(f"{path}: not a readable config ({error})") from None
    config = base()
    try:
        usual = config.phases.main.to_dict()
        # Keys that a run saved before they were there has as they are by default.
        config.phases = ConfigDict(
            {name: usual | keys for name, keys in values.pop("phases").items()}
        )
        for key, value in flatten(values).items():
            assign(config, key, tuple(value) if isinstance(value, list) else value)
    except (AttributeError, KeyError, TypeError) as error:
        raise BadInput(f"{path}: not a config ({error})") from None
    own = Path(path).absolute().parent / "tokenizer" / Path(config.tokenizer.path).name
    if config.tokenizer.path and not os.path.exists(config.tokenizer.path) and own.is_file():
        config.tokenizer.path = str(own)  # the workdir was moved since
    return config


def save(config: ConfigDict, path: Path) -> None:
    Path(path).write_text(json.dumps(config.to_dict(), indent=2, sort_keys=True) + "\n")


def flatten(tree, prefix: str = "") -> dict:
    """{'a.b': value} of nested dicts or ConfigDicts, sorted by key."""
    result = {}
    for key in sorted(tree):
        value = tree[key]
        if isinstance(value, dict | ConfigDict):
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
    check_types(config)
    values = flatten(config)
    for key, choices in CHOICES.items():
        require(values[key] in choices, key, values, f"expected one of {', '.join(choices)}")
    for key in SHARES:
        require(0 <= values[key] < 1, key, values, "expected a share from 0 up to 1")
    for key in AT_LEAST_ONE:
        require(values[key] >= 1, key, values, "expected at least 1")
    for key in NOT_NEGATIVE:
        require(values[key] >= 0, key, values, "expected 0 or more")
    for key, value in values.items():
        if isinstance(value, float):
            require(math.isfinite(value), key, values, "expected a finite number")
    process = config.distributed.process >= -1
    require(process, "distributed.process", values, "expected a number from 0, or -1")
    require(config.seed < 2**32, "seed", values, "expected less than 2**32")
    check_modules(config)
    check_corpus(config, values)
    check_bands(config, values)
    check_model(config, values)
    check_train(config, values)
    check_phases(config, values)
    multiple = config.checkpoint.every % config.log.every == 0
    hint = f"expected a multiple of log.every={config.log.every}, so that no report spans a restart"
    require(multiple, "checkpoint.every", values, hint)


def require(condition: bool, key: str, values: dict, hint: str) -> None:
    if not condition:
        raise BadInput(f"config.{key}={values[key]!r}: {hint}")


def check_types(config: ConfigDict) -> None:
    expected = flatten(base())
    for name in config.phases:
        expected |= {f"phases.{name}.{key}": 0 for key in Phase._fields[4:] + ("steps",)}
    values = flatten(config)
    for key, value in values.items():
        if key not in expected:
            raise BadInput(f"config.{key}: no such key")
        kind = type(expected[key])
        if type(value) is not kind:
            raise BadInput(f"config.{key}={value!r}: expected {kind.__name__}")
    named = [key for key in expected if "main" in config.phases or "phases.main." not in key]
    missing = [key for key in named if key not in values]
    if missing:
        raise BadInput(f"config.{missing[0]}: missing")


def check_modules(config: ConfigDict) -> None:
    """The file name is the registry of models and objectives."""
    for group, folder in (("model", "models"), ("objective", "objectives")):
        name = config[group].name
        if not name.isidentifier() or importlib.util.find_spec(f"bert_jax.{folder}.{name}") is None:
            raise BadInput(f"config.{group}.name={name!r}: there is no bert_jax/{folder}/{name}.py")


def sources(config: ConfigDict) -> list[str]:
    """The parts of `corpus.source`."""
    return [part for part in map(str.strip, config.corpus.source.split(",")) if part]


def check_corpus(config: ConfigDict, values: dict) -> None:
    """That the lists of formats and weights fit the list of sources, and what a tuple holds."""
    number = len(sources(config))
    require(number >= 1, "corpus.source", values, "names no source")
    forms = [form.strip() for form in config.corpus.format.split(",")]
    hint = f"expected one of {', '.join(FORMATS)}, or one for each of {number} sources"
    require(set(forms) <= set(FORMATS), "corpus.format", values, hint)
    require(len(forms) in (1, number), "corpus.format", values, hint)
    weights = config.corpus.weights
    hint = f"expected a number over 0 for each of {number} sources, or ()"
    real = all(type(weight) in (int, float) and 0 < weight <= 1000 for weight in weights)
    require(real and len(weights) in (0, number), "corpus.weights", values, hint)
    symbols = 0 <= config.filter.line_symbols <= 1
    require(symbols, "filter.line_symbols", values, "expected a share from 0 to 1")


def check_bands(config: ConfigDict, values: dict) -> None:
    numbers = all(type(number) in (int, float) for number in config.bands)
    steps, least, largest = config.bands[::3], config.bands[1::3], config.bands[2::3]
    rising = list(steps) == sorted(set(steps)) and all(
        a <= b for a, b in zip(least, largest, strict=False)
    )
    hint = "expected rising steps, each with the least and largest normal loss"
    require(numbers and len(config.bands) % 3 == 0 and rising, "bands", values, hint)


def check_model(config: ConfigDict, values: dict) -> None:
    divides = config.model.width % config.model.heads == 0
    require(divides, "model.heads", values, f"does not divide model.width={config.model.width}")
    paired = config.model.segments >= 2 or config.objective.pairs == "none"
    require(paired, "model.segments", values, f"objective.pairs={config.objective.pairs} needs 2")
    shares = config.objective.mask_share + config.objective.random_share
    require(shares <= 1, "objective.random_share", values, "with mask_share it is over 1")
    require(0 <= config.optimizer.beta1 < 1, "optimizer.beta1", values, "expected from 0 up to 1")
    require(0 < config.optimizer.beta2 < 1, "optimizer.beta2", values, "expected between 0 and 1")
    for key in ("model.epsilon", "optimizer.epsilon"):
        require(values[key] > 0, key, values, "expected more than 0")


def check_train(config: ConfigDict, values: dict) -> None:
    both = config.train.rows_per_chip and config.train.micro_batches > 1
    hint = f"follows from train.rows_per_chip={config.train.rows_per_chip}; set one of them"
    require(not both, "train.micro_batches", values, hint)
    kept = config.optimizer.name != "adafactor" or config.optimizer.moment_dtype == "float32"
    require(
        kept, "optimizer.moment_dtype", values, "optimizer.name='adafactor' keeps no first moment"
    )


def check_phases(config: ConfigDict, values: dict) -> None:
    order = config.phase_order
    named = order and len(set(order)) == len(order) and set(order) == set(config.phases)
    hint = f"expected the keys of phases, each once: {tuple(sorted(config.phases))}"
    require(named, "phase_order", values, hint)
    for name in order:
        phase, path = config.phases[name], f"phases.{name}"
        require(phase.steps >= 1, f"{path}.steps", values, "expected at least 1")
        require(phase.batch >= 1, f"{path}.batch", values, "expected at least 1")
        require(phase.length >= 5, f"{path}.length", values, "expected at least 5")
        hint = f"longer than model.positions={config.model.positions}"
        require(phase.length <= config.model.positions, f"{path}.length", values, hint)
        require(phase.predictions >= 1, f"{path}.predictions", values, "expected at least 1")
        hint = f"more than fit into {phase.length} tokens beside [CLS] and [SEP]"
        require(phase.predictions <= phase.length - 3, f"{path}.predictions", values, hint)
        hint = f"a row of {phase.length} tokens holds from 1 to {phase.length // 5} pairs"
        fits = 1 <= phase.sequences <= phase.length // 5
        require(fits, f"{path}.sequences", values, hint)
        parts = config.train.micro_batches
        hint = f"does not divide into train.micro_batches={parts}"
        require(phase.batch % parts == 0, f"{path}.batch", values, hint)


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
    return (group == "model" and name not in free) or key in ("objective.name", "objective.pairs")


def refusals(old: ConfigDict, new: ConfigDict, step: int) -> list[str]:
    """The keys in which a run at `step` may not differ from its saved config: all but cadence, place and future."""
    before, after = phases(old), phases(new)
    started = {phase.name for phase in before if phase.first < step}
    # The steps of the phase that the run is in, or has just ended with, may change; not to fewer than are done.
    unfinished = {phase.name for phase in before if phase.last > step or phase == before[-1]}
    unfinished &= {phase.name for phase in after if phase.last >= step}
    refused = []
    for key, (was, now) in differences(spelled_out(old), spelled_out(new)).items():
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


def describe(config: ConfigDict) -> str:
    """Every resolved key, one a line; those that differ from base are marked with what base has."""
    changed = differences(base(), config)
    lines = []
    for key, value in flatten(config).items():
        note = f"    # base: {changed[key][0]!r}" if key in changed else ""
        lines.append(f"{key} = {value!r}{note}")
    return "\n".join(lines)
