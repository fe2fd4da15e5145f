"""`init_from`: a new run starts with the encoder of a run, an export or a published checkpoint; its heads are fresh."""

from pathlib import Path
from typing import NamedTuple

import numpy as np
from ml_collections import ConfigDict

from bert_jax import config as configs
from bert_jax.checkpoints import fingerprint
from bert_jax.convert import load_model, names
from bert_jax.data import download
from bert_jax.data.vocabulary import tokenizer_from_file
from bert_jax.errors import BadInput
from bert_jax.parallel.processes import Cluster
from bert_jax.storage import checksums


class Encoder(NamedTuple):
    """The encoder of another model."""

    arrays: dict[str, np.ndarray]  # {path in params: float32 array}
    source: dict  # what run.json says about it
    vocabulary: int  # its size
    tokenizer: str  # its fingerprint


def read(config: ConfigDict, processes: Cluster) -> Encoder:
    """Reads the encoder that config.init_from names, in each process.

    Raises BadInput if the source is another model than the config's, differs between processes, or has another
    tokenizer than a store that is still to be prepared.
    """
    name = config.init_from
    # With these keys, JAX remains set up as for this run.
    same = [f"{key}={config[key]}" for key in ("dtype", "compilation_cache")]
    model = load_model.open_model(name, same, head="")
    check_settings(config, model.config)
    params = load_model.trained(model)
    shared = {item.path for item in names.parameters(model.config.model) if item.part == "head"}
    arrays = {
        path: array
        for path, array in params.items()
        if path.startswith("encoder/") or path in shared
    }
    digest = checksums.manifest_digest(fingerprint.of_tree(arrays))
    processes.compare({f"config.init_from={name}: fingerprint": digest})
    source = {"source": Path(name).name, "step": model.step, "fingerprint": digest}
    source["positions"] = load_model.trained_positions(model)
    encoder = Encoder(arrays, source, model.vocabulary.size, model.tokenizer.fingerprint)
    if not (config.batches or download.exists(config.store)):
        tokenizer = tokenizer_from_file(config) if config.tokenizer.path else None
        check_tokenizer(config, encoder, "tokenizer.path", tokenizer)
    return encoder


def check_settings(config: ConfigDict, source: ConfigDict) -> None:
    """Raises BadInput if the source has another model, apart from keys of training alone, and from `pooling`.

    This key, which fine-tuning takes from the source, changes no vector of a token. A phase may have other values of
    the model than the whole config.
    """
    free = (*configs.CHANGEABLE, "model.pooling")
    for path, (expected, value) in configs.differences(source, configs.at_step(config, 0)).items():
        of_model = path.startswith("model.") and configs.is_of_model(path)
        if of_model and not configs.may_change(path, free):
            at = f"config.{path}={value!r} in the first phase"
            raise BadInput(f"{at}: config.init_from={config.init_from} has {expected!r}")


def check_tokenizer(config: ConfigDict, encoder: Encoder, key: str, tokenizer) -> None:
    """Raises BadInput unless the encoder was trained with this tokenizer, that of the data, which `key` names."""
    if not (tokenizer and tokenizer.fingerprint == encoder.tokenizer):
        raise BadInput(
            f"config.{key}={configs.lookup(config, key)!r}: not the tokenizer of config.init_from={config.init_from};"
            " prepare a store with config.tokenizer.path set to its file; if the model has more rows, or other rules in"
            " tokenizer_config.json, import it first"
        )
