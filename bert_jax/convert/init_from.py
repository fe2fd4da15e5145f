"""`init_from`: a new run starts with the parameters of a run, an export or a published checkpoint, as far as it has
them, and with `init_moments` with the state of its optimizer."""

from pathlib import Path
from typing import NamedTuple

import numpy as np
from ml_collections import ConfigDict

from bert_jax import config as configs
from bert_jax.checkpoints import fingerprint, reader
from bert_jax.checks import require
from bert_jax.convert import names, open_model, tiling, vocabulary_extension
from bert_jax.data import download
from bert_jax.data.vocabulary import tokenizer_from_file
from bert_jax.errors import BadInput
from bert_jax.layers import counts
from bert_jax.models import base as models
from bert_jax.parallel.cluster import Cluster
from bert_jax.registry import part_of
from bert_jax.runs import continuation, open_run, workdir
from bert_jax.storage import checksums
from bert_jax.tasks.supervised import examples

WORDS = "embedder/words"  # end of the path of the embeddings with a row for each piece


class SourceModel(NamedTuple):
    """The parameters of another model: its body and its heads, see models/base.py."""

    arrays: dict[str, np.ndarray]  # {path in params of this model: float32 array}
    source: dict  # what run.json says about it
    vocabulary: int  # its size, without the pieces of `tokenizer_of`
    tokenizer: list  # its rules
    layers: int  # of a smaller network; 0 for one of the same sizes
    moments: dict[str, np.ndarray]  # {path in opt_state: array}; {} without config.init_moments


def read(config: ConfigDict, processes: Cluster) -> SourceModel:
    """Reads the model that config.init_from names, in each process.

    Raises BadInput if the config's model does not take that of the source, or if the source differs between processes,
    or has another tokenizer than a store that is still to be prepared.
    """
    name = config.init_from
    model = open_source(config)
    subtrees = mapped_subtrees(config, model.config)
    check_settings(config, model.config)
    tokenizer = tokenizer_of(config, model)
    heads = reused_heads(config, model)
    arrays = {}
    for path, array in open_model.trained(model).items():
        if tokenizer.size > model.vocabulary.size and path.endswith(WORDS):
            array = array[: model.vocabulary.size]
        subtree = models.subtree_of(path, subtrees)
        if subtree:
            arrays[subtrees[subtree] + path.removeprefix(subtree)] = array
        elif path in heads:
            arrays[path] = array
    digest = checksums.json_digest(fingerprint.of_tree(arrays))
    processes.compare({f"config.init_from={name}: fingerprint": digest})
    source = {
        "source": Path(name).name,
        "step": model.step,
        "fingerprint": digest,
        "positions": open_run.trained_positions(model),
    }
    moments = read_moments(config, model) if config.init_moments else {}
    changed = configs.differences(model.config, config).keys()
    layers = 0
    if tiling.fits(model.config, config) and not changed.isdisjoint(tiling.SIZES):
        layers = model.config.model.layers
    size = model.vocabulary.size
    body = SourceModel(arrays, source, size, tokenizer.rules, layers, moments)
    if not (config.batches or download.exists(config.store)):
        tokenizer = tokenizer_from_file(config) if config.tokenizer.path else None
        check_tokenizer(config, body, "tokenizer.path", tokenizer)
    return body


def open_source(config: ConfigDict) -> open_run.OpenModel:
    """Opens the model of config.init_from. In pretraining, reads the heads of another program's model, too, if names.py
    has them."""
    setup = [f"dtype={config.dtype}"]
    if config.init_moments:
        setup.append("checkpoint.average=1")  # a mean has none
    if examples.of(config):
        return open_model.open_model(config.init_from, setup, head="")
    try:
        return open_model.open_model(config.init_from, setup)
    except BadInput as error:
        model = open_model.open_model(config.init_from, setup, head="")
        print(f"init_from: takes no heads ({error})")
        return model


def reused_heads(config: ConfigDict, model: open_run.OpenModel) -> set[str]:
    """Returns the paths of parameters outside of the body that the run starts with: in pretraining all of the same
    architecture, in fine-tuning those of the part `head` (ModernBERT)."""
    if config.model.name != model.config.model.name:
        return set()
    if not examples.of(config):
        return set(names.by_path(model.params))
    table = names.parameters(model.config.model)
    return {entry.path for entry in table if entry.part == "head"}


def read_moments(config: ConfigDict, model: open_run.OpenModel) -> dict[str, np.ndarray]:
    """Returns {path in opt_state: array} of the optimizer of the checkpoint that the model is from.

    Raises BadInput if there is none, or if it is of another optimizer or network.
    """
    trees = {}
    with workdir.opened_at(config.init_from) as run:
        path = run.checkpoints / str(model.step)
        reason = reader.problem(path, model.info.get("run", ""), ("opt_state",), trees)
    hint = f"{path} has no state of an optimizer; {reason or 'name a run that has trained'}"
    require("opt_state" in trees, "init_moments", config, hint)
    for key in ("optimizer.name", "model.name", *tiling.SIZES):
        before = configs.differences(model.config, config).get(key)
        hint = f"config.init_from={config.init_from} has moments of another one: {before}"
        require(not before, key, config, hint)
    return {
        path: array
        for path, array in names.by_path(trees["opt_state"]).items()
        if path.startswith("inner/")  # the guard starts anew
    }


def mapped_subtrees(config: ConfigDict, source: ConfigDict) -> dict[str, str]:
    """Returns {subtree of the source's body: the subtree of this model that starts with it}, by TAKES of
    models/base.py.

    Raises BadInput if there is none.
    """
    name = source.model.name
    if name == config.model.name:
        return {subtree: subtree for subtree in models.body(config)}
    taken = models.taken(config, name)
    hint = f"takes no part of config.init_from={config.init_from}, which has model.name={name!r}"
    require(taken, "model.name", config, hint)
    return taken


def check_settings(config: ConfigDict, source: ConfigDict) -> None:
    """Raises BadInput if the source has another model, apart from keys of training alone, from `pooling`, and from
    smaller sizes, see tiling.py. Prints other bases of rotary positions.

    Of two models, the keys that both have are compared. `pooling`, which fine-tuning takes from the source, changes no
    vector of a token. A phase may have other values of the model than the whole config.
    """
    keys = part_of(config, "model").PHASE_DEFAULTS
    bases = [f"model.{key}" for key in keys]
    free = [*continuation.CHANGEABLE, "model.pooling", *bases]
    if "model.rotary_base" in bases:  # no array has a row for each position
        free.append("model.max_length")
    for path, (expected, value) in configs.differences(source, configs.at_step(config, 0)).items():
        if not path.startswith("model.") or path == "model.name" or None in (expected, value):
            continue
        if path in bases:
            print(f"init_from: config.{path}={value!r} instead of {expected!r}")
        is_larger = path in tiling.SIZES and value > expected and tiling.fits(source, config)
        is_shape = continuation.is_of_model(path) and not continuation.may_change(path, free)
        if is_shape and not is_larger:
            key = f"config.{path}={value!r} in the first phase"
            text = f"{key}: config.init_from={config.init_from} has {expected!r}"
            if path in tiling.SIZES:
                text += "; a larger network may start from it, with heads of the same size"
            raise BadInput(text)


def check_tokenizer(config: ConfigDict, body: SourceModel, key: str, tokenizer) -> None:
    """Raises BadInput unless the body was trained with this tokenizer, that of the data, which `key` names."""
    require(
        tokenizer and tokenizer.rules == body.tokenizer,
        key,
        config,
        f"not the tokenizer of config.init_from={config.init_from};"
        " prepare a store with config.tokenizer.path set to its file; if the model has more rows, or other rules in"
        " tokenizer_config.json, import it first",
    )


def check_same(
    config: ConfigDict, run: str, saved: ConfigDict, info: dict, processes: Cluster
) -> None:
    """Raises BadInput if a resumed run names another model than it started from. Its content decides: a name that has
    not changed is not read.

    run: the name of the run.
    saved, info: its config.json and run.json.
    """
    if config.init_from in ("", saved.init_from):
        return
    source = read(config, processes).source
    expected = info.get("imported", {}).get("fingerprint")
    hint = f"not the model that {run} started from"
    require(source["fingerprint"] == expected, "init_from", config, hint)


def fit(config: ConfigDict, body: SourceModel, params) -> dict[str, np.ndarray]:
    """Returns {path: array} of the parameters that start with those of a body, which may be of a smaller network.

    params: the run's parameters or their shapes.

    Raises BadInput for an array of another shape.
    """
    fitted = {}
    for path, leaf in names.by_path(params).items():
        source = path
        if body.layers:
            source = tiling.path_before(path, config.model.layers, body.layers)
        if source not in body.arrays:
            continue
        array = body.arrays[source]
        shape = leaf.shape
        if path.endswith(WORDS) and len(array) == body.vocabulary:
            shape = (len(array), *shape[1:])  # the rows of new pieces are fresh
        if body.layers and np.all(np.less_equal(array.shape, shape)):
            array = tiling.tile(array, shape)
        if array.shape != shape:
            shapes = f"{path} has shape {shape} here, {array.shape} there"
            raise BadInput(f"config.init_from={config.init_from}: {shapes}")
        fitted[path] = array
    return fitted


def describe(config: ConfigDict, body: SourceModel, fitted: dict, params) -> dict:
    """Returns what run.json says about a run that starts with a body, and prints it: the source as `imported`, and as
    `fresh` the names of the other parts.

    fitted: what `fit` returns.
    params: the run's parameters or their shapes.

    Raises BadInput if a subtree of the body is not among them.
    """
    subtrees = models.body(config)

    def part(path: str) -> str:
        subtree, name = models.split(path, subtrees)
        return subtree or name

    filled = {*map(part, fitted)}
    for subtree in {models.subtree_of(path, subtrees) for path in body.arrays} - {"", *filled}:
        raise BadInput(f"config.init_from={config.init_from}: nothing in it fits {subtree}")
    require(fitted, "init_from", config, "nothing in it fits the model")
    others = names.by_path(params).keys() - fitted.keys()
    fresh = sorted({models.split(path, subtrees)[1] for path in others})
    number = counts.count(fitted, body.vocabulary)
    parts = sorted(filled)
    if body.layers:
        parts.append(f"tiled from {body.layers} layers")
    if body.moments:
        parts.append("the optimizer's moments")
    text = f"{number:,} parameters of {body.source['source']} ({', '.join(parts)})"
    print(f"init_from: {text}; fresh: {', '.join(fresh) or 'nothing'}", flush=True)
    return {"imported": body.source | {"parameters": number}, "fresh": fresh}


def tokenizer_of(config: ConfigDict, model: open_run.OpenModel):
    """Returns the tokenizer of a model to start from: for a task with labelled examples and `tokenizer.add_special`
    with the special tokens that it lacks, whose embeddings are fresh."""
    if config.tokenizer.add_special and examples.of(config):
        is_causal = config.objective.get("causal", False)
        return vocabulary_extension.with_special(model.tokenizer, is_causal)
    return model.tokenizer
