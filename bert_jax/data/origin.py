"""Compares a config with the config keys and the text that a store or saved batches were built from."""

import functools
import inspect
import itertools
import json
from pathlib import Path

from bert_jax.checks import heldout_sources, source_names, sources, split_list, value_of
from bert_jax.data import manifest as manifests
from bert_jax.data.preparation import corpus
from bert_jax.data.sources import files, tables
from bert_jax.data.vocabulary import tokenizer_from_file
from bert_jax.errors import BadInput
from bert_jax.registry import user_function
from bert_jax.storage import checksums
from bert_jax.tokenizers import tokenizer as tokenizers
from bert_jax.tokenizers import training


def made_from(config) -> dict:
    """Returns the config keys and values that decide a store's content, besides the text.

    `tokenizer.path` is represented by the fingerprint of its file, so that the path itself does not matter.
    """
    values = {}
    for key in ("format", "field", "sentences", "heldout"):
        values[f"corpus.{key}"] = config.corpus[key]
    # Without these keys, the store of a config without them is the same as before they existed.
    if config.corpus.separator:
        values["corpus.separator"] = config.corpus.separator
    if config.corpus.heldout_by != "hash":
        values["corpus.heldout_by"] = config.corpus.heldout_by
    if count := len(heldout_sources(config)):
        values["corpus.heldout_source"] = f"the last {count} of the sources"
    if any(names := source_names(config)):
        values["corpus.source: names"] = names
    if name := config.corpus.map:
        with user_function("corpus.map", name) as function:
            # Of the whole file: functions and tables that it uses decide the text as its own lines do.
            digest = checksums.digest(inspect.getfile(inspect.unwrap(function)))
            values["corpus.map"] = [name.rpartition(".")[2], digest]
    for key, value in config.filter.items():
        if value or key != "unusable_files":
            values[f"filter.{key}"] = value
    return values | tokenizer_keys(config)


def tokenizer_keys(config) -> dict:
    """Returns the config keys and values that decide the tokenizer of a store."""
    if config.tokenizer.path:
        return {"tokenizer.path": tokenizer_from_file(config).fingerprint}
    keys = config.tokenizer
    values = {key: keys[key] for key in ("kind", "size", "lowercase", "sample")}
    values |= training.changes(keys)  # older stores have none of them
    return {f"tokenizer.{key}": value for key, value in values.items()}


def check(config, directory: Path, recorded: dict, requested: dict) -> None:
    """Raises BadInput if the keys of the store in `directory` differ from those requested; see `differences`."""
    if changed := differences(config, directory, recorded, requested):
        raise BadInput(
            f"{config.store}: the store is of another config: {changed};"
            " name another config.store, or delete this one"
        )


def differences(config, directory: Path, recorded: dict, requested: dict) -> str:
    """Describes in one line the keys that differ between a manifest and a config; '' if none do.

    recorded: the keys in the manifest of `directory`.
    requested: those of the config.

    A key that is absent from one of them reads as None. If the config names a vocabulary file, its fingerprint is
    compared with that of the tokenizer in `directory`, whether that one was trained or read from a file.
    """
    if "tokenizer.path" in requested:
        recorded = {key: recorded[key] for key in recorded if not key.startswith("tokenizer.")}
        recorded["tokenizer.path"] = tokenizers.load(directory / "tokenizer").fingerprint
    requested = json.loads(json.dumps(requested))  # converts tuples to lists, as in the manifest
    changes = []
    for key in sorted(requested | recorded):
        before = recorded.get(key)
        now = requested.get(key)
        if before == now:
            continue
        text = f": built with {before!r}, the config has {now!r}"
        if key in ("task.data", "tokenizer.path"):  # digests
            text = f"={value_of(config, key)}: the store is of other files, or of another tokenizer.lowercase"
        changes.append(f"config.{key}{text}")
    return "; ".join(changes)


def text_has_changed(config, directory: Path, text: dict) -> bool:
    """Compares the text that a config names with that of a store or of saved batches in `directory`.

    text: as in the manifest.

    Returns whether it is the same source with other content; False if it cannot be read: a store remains usable without
    its text. Raises BadInput if another source has other content, or cannot be read.
    """
    names = sources(config)
    forms = itertools.cycle(split_list(config.corpus.format))
    recorded = text["names"]
    is_same = functools.partial(is_same_text, (directory / manifests.NAME).stat().st_mtime)
    try:
        if len(names) == len(recorded) and all(
            map(is_same, names, forms, recorded, text["identities"])
        ):
            return False
        reason = "other text"
    except BadInput as error:  # no such file
        if names == recorded:
            return False
        reason = str(error)
    if names != recorded:
        raise BadInput(
            f"config.corpus.source={config.corpus.source!r}: {directory} was built from"
            f" {','.join(recorded)!r}; {reason}"
        )
    return True


def is_same_text(built: float, name: str, form: str, before: str, identity: dict) -> bool:
    """Returns whether a source has the text that it had when something was built from it.

    built: when, in seconds as of `st_mtime`.
    form: the format of the source.
    before: the name of the source then.
    identity: what `corpus.Source.identify` returned then.
    """
    if name == "pydocs" or tables.library_of(name):  # identified by its name
        return name == before
    paths = corpus.find_files(name, form)
    if not files.count(paths).items() <= identity.items():
        return False
    is_old = max(path.stat().st_mtime for path in paths) < built
    return (name == before and is_old) or files.identify(paths) == identity
