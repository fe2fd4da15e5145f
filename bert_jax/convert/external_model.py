"""A model from another program: checks it and converts it to parameters of bert_jax."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from ml_collections import ConfigDict

from bert_jax import config as configs
from bert_jax.convert import marian, names
from bert_jax.convert.settings import Labeler
from bert_jax.data import batch
from bert_jax.errors import BadInput
from bert_jax.objectives import base
from bert_jax.runs import continuation
from bert_jax.tasks import base as tasks
from bert_jax.tokenizers.special_tokens import frame_of
from bert_jax.tokenizers.tokenizer import Tokenizer


class ExternalModel(NamedTuple):
    """A model that a reader opened. The reader has read names, shapes and small files; `load` reads a tensor."""

    directory: Path
    format: str  # huggingface or google
    settings: dict[str, Any]  # keys of config.model
    pieces: int  # size of the vocabulary, according to its config file
    tokenizer: Tokenizer
    shapes: dict[str, tuple[int, ...]]  # by the tensor names of names.py
    load: Callable[[str], np.ndarray]  # reads the tensor of such a name
    labeler: Labeler = Labeler()

    def table(self) -> list[names.Parameter]:
        """Returns the parameters that the model may have."""
        return names.parameters(self.settings, self.labeler.objective)

    def parts(self) -> set[str]:
        """Returns the parts of names.py of which the model has at least one tensor."""
        return {row.part for row in self.table() if getattr(row, self.format) in self.shapes}


# --- The config -----------------------------------------------------------------------------------


def to_config(
    source: ExternalModel, config: ConfigDict | None, overrides: Iterable[str]
) -> ConfigDict:
    """Returns the config (base if None) with the settings of the source's model, and the overrides applied.

    A limit of translations that the config leaves open is the source's.

    Without a config, task.pair_task is nsp if the source has a pooler, and rows are at most as long as its
    positions; but a source with a task decides objective, task and length.

    Raises BadInput if the result is invalid or is another model than the source.
    """
    is_default = config is None
    config = configs.base() if is_default else config.copy_and_resolve_references()
    try:
        configs.apply(config, [f"model.name={source.settings['name']}"])
        config.model.update(source.settings)
        if is_default:
            set_defaults(config, source)
        elif config.task.get("extra_pieces") == 0:
            config.task.extra_pieces = marian.read_limit(source.directory)
        configs.apply(config, overrides)
        configs.check(config)
    except BadInput as error:
        raise BadInput(f"{source.directory}: {error}") from None
    model = configs.at_step(config, 0).model  # the first phase may have its own values
    for key, value in source.settings.items():
        if model[key] != value and continuation.is_of_model(f"model.{key}"):
            key = f"config.model.{key}={model[key]} in the first phase"
            raise BadInput(f"{key}: {source.directory} has {value}")
    return config


def set_defaults(config: ConfigDict, source: ExternalModel) -> None:
    """Sets the keys of a default config that depend on the source, see `to_config`."""
    has_pairs = source.parts() & {"pooler", "pair"} and config.model.get("type_vocabulary", 0) > 1
    config.task.pair_task = "nsp" if has_pairs else "none"
    phase = config.phases.main
    phase.length = min(phase.length, config.model.max_length)
    phase.max_predictions = min(
        phase.max_predictions, max(1, phase.length - frame_of(config).size(2))
    )
    config.schedule.warmup = phase.steps // 10
    architecture = names.find_architecture(source.settings, source.labeler.objective)
    configs.apply(config, architecture.default_keys(phase.length, source.directory))
    configs.apply(config, source.labeler.overrides)


# --- The parameters -------------------------------------------------------------------------------


def parameters(source: ExternalModel, config: ConfigDict, objective: base.Objective) -> tuple:
    """Converts the tensors of a checked source to parameters of the objective: the tree that its init returns, on the
    host. Returns them; the parts that the source lacks or names.py does not have, which are initialized as in a new
    run; and those that the objective does not use.

    Raises BadInput for NaN or infinity.
    """
    row = tasks.make(config).shapes(configs.phase_at(config, 0), 1)
    example = batch.synthetic(row, source.tokenizer.size)
    tree = jax.eval_shape(objective.init, jax.random.key(0), example)
    shapes = {path: leaf.shape for path, leaf in names.by_path(tree).items()}
    parts = source.parts()
    sources = {parameter.path: parameter for parameter in source.table()}
    needed = set()
    named = set()
    arrays = {}
    for parameter in names.parameters(config.model, config.objective.name):
        path = parameter.path
        named.add(path)
        if path in shapes:
            needed.add(parameter.part)
            if path in sources and parameter.part in parts:
                arrays[path] = convert_tensor(source, sources[path], shapes[path])
    missing = [path for path in shapes if path not in arrays]
    arrays |= initialize(objective, example, config.seed, missing)
    params = jax.tree.unflatten(jax.tree.structure(tree), [arrays[path] for path in shapes])
    fresh = (needed - parts) | {path.partition("/")[0] for path in missing if path not in named}
    return params, sorted(fresh), sorted(parts - needed)


def initialize(objective, example, seed: int, paths: list[str]) -> dict[str, np.ndarray]:
    """Returns {path: array} of these parameters as the objective's init draws them."""
    if not paths:
        return {}

    def init(rng):
        arrays = names.by_path(objective.init(rng, example))
        return {path: arrays[path] for path in paths}

    return jax.device_get(jax.jit(init)(jax.random.key(seed)))


def convert_tensor(source: ExternalModel, parameter: names.Parameter, shape: tuple) -> np.ndarray:
    """Returns a parameter as float32 in the layout of bert_jax, its vocabulary axis padded with zeros to `shape`."""
    name = getattr(parameter, source.format)
    tensor = np.asarray(source.load(name), np.float32)
    if not np.isfinite(tensor).all():
        raise BadInput(f"{source.directory}: {name} has NaN or infinite values")
    array = np.split(tensor, parameter.number, parameter.stacked(source.format))[parameter.place]
    if source.format in parameter.transposed:
        array = array.T
    array = names.reorder(array, parameter, source.settings, to_ours=True)
    padded = np.zeros(shape, np.float32)
    padded[: len(array)] = array
    return padded


# --- Validation -----------------------------------------------------------------------------------


def check(source: ExternalModel) -> None:
    """Raises BadInput for missing tensors, unknown tensors, and shapes that contradict the settings.

    Runs before arrays are allocated, because a damaged config file may have sizes of any magnitude.
    """
    directory = source.directory
    layers = source.settings["layers"] + source.settings.get("decoder_layers", 0)
    number = len(source.shapes)
    if layers > number:
        raise BadInput(f"{directory}: {layers} layers in its config, but {number} tensors")
    parts = source.parts() | {"network"}
    settings = source.settings | {"outputs": source.labeler.outputs}
    unknown = dict(source.shapes)
    for parameter in source.table():
        name = getattr(parameter, source.format)
        actual = source.shapes.get(name)
        unknown.pop(name, None)
        shape = names.shape(parameter, settings, source.pieces, source.format)
        if actual is None and parameter.part in parts:
            raise BadInput(f"{directory}: {name} is missing, expected {list(shape)}")
        if actual not in (None, shape):
            raise BadInput(f"{directory}: {name} is {list(actual)}, expected {list(shape)}")
    if unknown:
        name, shape = min(unknown.items())
        model = source.settings["name"]
        raise BadInput(f"{directory}: {name} {list(shape)} is not a tensor of {model}")
    if source.tokenizer.size > source.pieces:
        sizes = f"its tokenizer has {source.tokenizer.size} pieces, its config {source.pieces}"
        reason = f"no row for {source.tokenizer.pieces[source.pieces]!r}"
        raise BadInput(f"{directory}: {sizes}: {reason}")
