"""A model that others made, checked at the door, and our parameters from it."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from ml_collections import ConfigDict

from bert_jax import config as configs
from bert_jax.convert import names
from bert_jax.data import batch
from bert_jax.errors import BadInput
from bert_jax.objectives import base
from bert_jax.parallel import mesh as meshes
from bert_jax.tokenizers.tokenizer import Tokenizer

# Of config.model: with another value the tensors would be another model. The rest is for training alone.
FIXED = ("layers", "width", "heads", "feed_forward", "max_length", "type_vocabulary")
FIXED += ("activation", "epsilon")


class Source(NamedTuple):
    """What a reader finds; nothing but names, shapes and small files is read yet."""

    place: Path
    format: str  # huggingface or google
    settings: dict[str, Any]  # of config.model
    pieces: int  # of its vocabulary, by its own settings
    tokenizer: Tokenizer
    shapes: dict[str, tuple[int, ...]]  # of its tensors, by the names of names.py
    load: Callable[[str], np.ndarray]  # a tensor, by such a name

    def parts(self) -> set[str]:
        """The parts of names.py that it has something of."""
        known = names.parameters(self.settings["layers"])
        return {item.part for item in known if getattr(item, self.format) in self.shapes}


# --- The config -----------------------------------------------------------------------------------


def to_config(source: Source, config: ConfigDict | None, overrides: Iterable[str]) -> ConfigDict:
    """`config`, or base where it is None, with the model of the source, then with the overrides.

    Without a config there are pairs where the source has a pooler, and rows no longer than its positions.
    """
    own = config is None
    config = configs.base() if own else config.copy_and_resolve_references()
    with config.unlocked():
        config.model.update(source.settings)
        if own:
            paired = source.parts() & {"pooler", "pair"} and config.model.type_vocabulary > 1
            config.objective.pair_task = "nsp" if paired else "none"
            phase = config.phases.main
            phase.length = min(phase.length, config.model.max_length)
            phase.max_predictions = min(phase.max_predictions, max(1, phase.length - 3))
            config.schedule.warmup = phase.steps // 10
        for override in overrides:
            configs.apply(config, override)
    configs.check(config)
    config.expected_loss = ()  # they are of runs from the start
    config.lock()
    for key in FIXED:
        if config.model[key] != source.settings[key]:
            raise BadInput(
                f"config.model.{key}={config.model[key]}: {source.place} has {source.settings[key]}"
            )
    return config


# --- The parameters -------------------------------------------------------------------------------


class Parameters(NamedTuple):
    params: Any  # the tree that the objective's init makes, on the host
    fresh: list[str]  # parts that the source lacks: they start as in any new run
    unused: list[str]  # parts of the source that the objective has no place for


def parameters(source: Source, config: ConfigDict, objective: base.Objective) -> Parameters:
    """The tensors of a source that `check` has seen, as parameters of the objective. Raises BadInput at NaN."""
    example = batch.synthetic(1, 8, 1, source.tokenizer.size)
    shapes = jax.eval_shape(objective.init, jax.random.key(0), example)
    leaves, tree = jax.tree.flatten_with_path(shapes)
    shapes = {meshes.path_name(path): leaf.shape for path, leaf in leaves}
    table = names.parameters(config.model.layers)
    parts = source.parts()
    loaded = {
        item.path: ours(source, item, shapes[item.path])
        for item in table
        if item.part in parts and item.path in shapes
    }
    missing = [path for path in shapes if path not in loaded]
    loaded |= fresh(objective, example, config.seed, missing)
    needed = {item.part for item in table if item.path in shapes}
    params = jax.tree.unflatten(tree, [loaded[path] for path in shapes])
    return Parameters(params, sorted(needed - parts), sorted(parts - needed))


def fresh(objective, example, seed: int, paths: list[str]) -> dict[str, np.ndarray]:
    """{path: array} as a new run has it."""
    if not paths:
        return {}

    def init(rng):
        leaves = jax.tree.leaves_with_path(objective.init(rng, example))
        found = {meshes.path_name(path): leaf for path, leaf in leaves}
        return {path: found[path] for path in paths}

    return jax.device_get(jax.jit(init)(jax.random.key(seed)))


def ours(source: Source, item: names.Parameter, shape: tuple[int, ...]) -> np.ndarray:
    """One tensor as float32, laid out and padded as here."""
    name = getattr(item, source.format)
    array = np.asarray(source.load(name), np.float32)
    if not np.isfinite(array).all():
        number = int((~np.isfinite(array)).sum())
        raise BadInput(
            f"{source.place}: {name} {show(array.shape)}: {number} values are NaN or infinite"
        )
    array = array.T if source.format in item.transposed else array
    if array.shape != shape:
        array = np.pad(array, [(0, shape[0] - len(array))] + [(0, 0)] * (array.ndim - 1))
    return np.ascontiguousarray(array)


# --- The door -------------------------------------------------------------------------------------


def check(source: Source) -> None:
    """Refuses, in one line, tensors that are missing, surplus or of another shape than the settings say.

    Only then do the sizes of the settings become those of arrays: they may be anything.
    """
    layers, number = source.settings["layers"], len(source.shapes)
    if layers > number:
        raise BadInput(f"{source.place}: {layers} layers in its settings, and {number} tensors")
    table, parts = names.parameters(layers), source.parts() | {"encoder"}
    expected, problems = {}, []
    for item in table:
        shape = names.shape(item, source.settings, source.pieces, source.format)
        expected[getattr(item, source.format)] = item, shape
    for name, (item, shape) in expected.items():
        found = source.shapes.get(name)
        if found is None and item.part in parts:
            problems.append(f"{name} is missing, expected {show(shape)}")
        elif found is not None and found != shape:
            problems.append(f"{name} is {show(found)}, expected {show(shape)}")
    for name in sorted(source.shapes.keys() - expected.keys()):
        problems.append(f"{name} {show(source.shapes[name])} has no place in a BERT")
    if problems:
        more = f" (and {len(problems) - 1} more tensors)" if len(problems) > 1 else ""
        raise BadInput(f"{source.place}: {problems[0]}{more}")
    if source.tokenizer.size != source.pieces:
        words = getattr(table[0], source.format)
        raise BadInput(
            f"{source.place}: the tokenizer has {source.tokenizer.size} pieces, {words} is"
            f" {show(source.shapes[words])}; if the rows beyond are padding, append a line [unusedN] for each to"
            " vocab.txt"
        )


def show(shape: tuple[int, ...]) -> str:
    return f"[{', '.join(map(str, shape))}]"
