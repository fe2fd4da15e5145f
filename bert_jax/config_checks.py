"""Validates a config: types, choices, ranges, and keys that depend on each other."""

import ast
import importlib.util
import math

from ml_collections import ConfigDict

from bert_jax.errors import BadInput

CHOICES = {
    "dtype": ("auto", "float32", "bfloat16"),
    "gradient_dtype": ("float32", "bfloat16"),
    "corpus.sentences": ("auto", "lines", "rules"),
    "tokenizer.kind": ("wordpiece", "unigram", "bpe", "byte_bpe"),
    "model.attention": ("auto", "xla", "fused", "splash", "cudnn"),
    "model.activation": ("gelu_tanh", "gelu", "relu"),
    "objective.pair_task": ("nsp", "sop", "none"),
    "task.masking": ("token", "whole_word"),
    "optimizer.name": ("adam", "adafactor"),
    "optimizer.moment_dtype": ("float32", "bfloat16"),
    "train.remat": ("none", "attention", "full"),
    "schedule.name": ("linear", "cosine", "inverse_sqrt", "constant"),
}
SHARES = """
    corpus.heldout model.dropout model.attention_dropout task.mask_rate
    task.short_rate
""".split()
AT_LEAST_ONE = """
    model.layers model.width model.heads model.max_length model.type_vocabulary mesh.fsdp
    mesh.tensor distributed.timeout distributed.heartbeat train.micro_batches guard.stop_after
    guard.window log.every checkpoint.every checkpoint.keep evaluate.rows
""".split()
NOT_NEGATIVE = """
    seed distributed.processes timeouts.compile timeouts.step timeouts.save
    timeouts.evaluate corpus.workers model.feed_forward schedule.warmup optimizer.clip
    optimizer.learning_rate optimizer.weight_decay model.initializer checkpoint.keep_every
    checkpoint.compare evaluate.every evaluate.batch train.rows_per_device tokenizer.sample
    filter.document_characters task.mask_share task.random_share
""".split()
MAX_STEPS = 2**31  # steps are counted in int32
LARGEST = 1e300  # absolute value of numbers in a tuple; a comparison with it rejects NaN, too
FORMATS = ("lines", "files", "wiki", "jsonl")
MAIN = "phases.main."


def check(config: ConfigDict, values: dict, defaults: dict) -> None:
    """Raises BadInput for the first key that is unknown, has the wrong type, or has an invalid value.

    values, defaults: {'a.b': value} of the config, and of configs/base.py.
    """
    check_types(config, values, defaults)
    for key, choices in CHOICES.items():
        require(values[key] in choices, key, values, f"expected one of {', '.join(choices)}")
    for key in SHARES:
        require(0 <= values[key] < 1, key, values, "expected a share in [0, 1)")
    for key in AT_LEAST_ONE:
        require(values[key] >= 1, key, values, "expected at least 1")
    for key in NOT_NEGATIVE:
        require(values[key] >= 0, key, values, "expected 0 or more")
    for key, value in values.items():
        if isinstance(value, float):
            require(math.isfinite(value), key, values, "expected a finite number")
    fits = config.distributed.process >= -1
    require(fits, "distributed.process", values, "expected 0 or more, or -1")
    require(config.seed < 2**32, "seed", values, "expected less than 2**32")
    fits = config.guard.spike == 0 or config.guard.spike >= 2
    require(fits, "guard.spike", values, "expected 0, or at least 2 mean deviations")
    check_modules(config)
    check_corpus(config, values)
    check_expected_loss(config, values)
    check_model(config, values)
    check_train(config, values)
    check_phases(config, values)
    fits = config.checkpoint.every % config.log.every == 0
    hint = f"expected a multiple of log.every={config.log.every}: no report may span a restart"
    require(fits, "checkpoint.every", values, hint)


def require(condition: bool, key: str, values: dict, hint: str) -> None:
    """Raises BadInput with the key, its value and the hint unless the condition holds."""
    if not condition:
        raise BadInput(f"config.{key}={values[key]!r}: {hint}")


def check_types(config: ConfigDict, values: dict, defaults: dict) -> None:
    """Checks keys and types against the defaults; every phase has the keys of `phases.main`."""
    main = {key[len(MAIN) :]: value for key, value in defaults.items() if key.startswith(MAIN)}
    expected = {key: value for key, value in defaults.items() if not key.startswith(MAIN)}
    for name in config.phases:
        expected |= {f"phases.{name}.{key}": value for key, value in main.items()}
    for key, value in values.items():
        if key not in expected:
            raise BadInput(f"config.{key}: no such key")
        required = type(expected[key])
        if type(value) is not required:
            raise BadInput(f"config.{key}={value!r}: expected {required.__name__}")
    missing = [key for key in expected if key not in values]
    if missing:
        raise BadInput(f"config.{missing[0]}: missing")


def check_modules(config: ConfigDict) -> None:
    """Checks that model and objective name a file: the file name is the registry."""
    for group in ("model", "objective", "task"):
        name = config[group].name
        if not (name.isidentifier() and defines_make(f"bert_jax.{group}s.{name}")):
            wanted = f"bert_jax/{group}s/{name}.py with a make(config, ...)"
            raise BadInput(f"config.{group}.name={name!r}: there is no {wanted}")


def defines_make(module: str) -> bool:
    """Returns whether a module exists and defines `make(config, ...)`, without importing it. False for `base`."""
    spec = importlib.util.find_spec(module)
    source = spec.loader.get_source(module) if spec else None
    matches = (
        isinstance(node, ast.FunctionDef)
        and node.name == "make"
        and [argument.arg for argument in node.args.args[:1]] == ["config"]
        for node in ast.parse(source or "").body
    )
    return any(matches) and not module.endswith(".base")  # its `make` dispatches to the others


def split_list(text: str) -> list[str]:
    """Returns the parts between commas."""
    return [part.strip() for part in text.split(",")]


def sources(config: ConfigDict) -> list[str]:
    """Returns the parts of `corpus.source`."""
    return [part for part in split_list(config.corpus.source) if part]


def check_corpus(config: ConfigDict, values: dict) -> None:
    """Checks that there is one text format, or one for each source."""
    number = len(sources(config))
    require(number >= 1, "corpus.source", values, "names no source")
    names = split_list(config.corpus.format)
    hint = f"expected one of {', '.join(FORMATS)}, or one for each of {number} sources"
    fits = set(names) <= set(FORMATS) and len(names) in (1, number)
    require(fits, "corpus.format", values, hint)


def check_expected_loss(config: ConfigDict, values: dict) -> None:
    hint = "expected increasing steps, each with the lowest and highest normal loss"
    triples = config.expected_loss
    numbers = all(type(x) in (int, float) and abs(x) < LARGEST for x in triples)
    require(numbers and len(triples) % 3 == 0, "expected_loss", values, hint)
    steps, least, largest = triples[::3], triples[1::3], triples[2::3]
    rising = list(steps) == sorted(set(steps))
    rising &= all(a <= b for a, b in zip(least, largest, strict=True))
    require(rising, "expected_loss", values, hint)


def check_model(config: ConfigDict, values: dict) -> None:
    divides = config.model.width % config.model.heads == 0
    require(divides, "model.heads", values, f"does not divide model.width={config.model.width}")
    paired = config.model.type_vocabulary >= 2 or config.objective.pair_task == "none"
    hint = f"objective.pair_task={config.objective.pair_task} needs at least 2"
    require(paired, "model.type_vocabulary", values, hint)
    shares = config.task.mask_share + config.task.random_share
    require(shares <= 1, "task.random_share", values, "expected at most 1 - mask_share")
    require(0 <= config.optimizer.beta1 < 1, "optimizer.beta1", values, "expected in [0, 1)")
    require(0 < config.optimizer.beta2 < 1, "optimizer.beta2", values, "expected in (0, 1)")
    for key in ("model.epsilon", "optimizer.epsilon"):
        require(values[key] > 0, key, values, "expected more than 0")


def check_train(config: ConfigDict, values: dict) -> None:
    both = config.train.rows_per_device and config.train.micro_batches > 1
    hint = f"computed from train.rows_per_device={config.train.rows_per_device}; set one of them"
    require(not both, "train.micro_batches", values, hint)
    fits = config.optimizer.name != "adafactor" or config.optimizer.moment_dtype == "float32"
    hint = "expected float32: optimizer.name='adafactor' has no first moment"
    require(fits, "optimizer.moment_dtype", values, hint)


def check_phases(config: ConfigDict, values: dict) -> None:
    order = config.phase_order
    named = order and all(isinstance(name, str) for name in order)
    named = named and len(set(order)) == len(order) and set(order) == set(config.phases)
    hint = f"expected the keys of phases, each once: {tuple(sorted(config.phases))}"
    require(named, "phase_order", values, hint)
    total = 0
    for name in order:
        phase, path = config.phases[name], f"phases.{name}"
        require(phase.steps >= 1, f"{path}.steps", values, "expected at least 1")
        total += phase.steps
        hint = f"expected less than {MAX_STEPS} together with the earlier phases"
        require(total < MAX_STEPS, f"{path}.steps", values, hint)
        require(phase.batch >= 1, f"{path}.batch", values, "expected at least 1")
        require(phase.length >= 5, f"{path}.length", values, "expected at least 5")
        hint = f"expected at most model.max_length={config.model.max_length}"
        require(phase.length <= config.model.max_length, f"{path}.length", values, hint)
        require(
            phase.max_predictions >= 1, f"{path}.max_predictions", values, "expected at least 1"
        )
        hint = f"expected at most {phase.length - 3} in a row of {phase.length} tokens"
        require(phase.max_predictions <= phase.length - 3, f"{path}.max_predictions", values, hint)
        hint = f"expected 1 to {phase.length // 5} pairs in a row of {phase.length} tokens"
        fits = 1 <= phase.max_packed <= phase.length // 5
        require(fits, f"{path}.max_packed", values, hint)
        parts = config.train.micro_batches
        hint = f"expected a multiple of train.micro_batches={parts}"
        require(phase.batch % parts == 0, f"{path}.batch", values, hint)
    check_profile(config, values, total)


def check_profile(config: ConfigDict, values: dict, total: int) -> None:
    steps = config.profile.steps
    numbers = len(steps) == 2 and all(type(step) is int for step in steps)
    hint = f"expected (), or (first, last + 1) among the steps 0 to {total - 1}"
    fits = steps == () or (numbers and 0 <= steps[0] < steps[1] <= total)
    require(fits, "profile.steps", values, hint)
