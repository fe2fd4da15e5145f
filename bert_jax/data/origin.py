"""The config keys that a store or saved batches were built from, and their comparison with another config."""

import json
from pathlib import Path

from bert_jax.data.vocabulary import tokenizer_from_file
from bert_jax.tokenizers import tokenizer as tokenizers


def made_from(config) -> dict:
    """Returns the config keys and values that decide a store's content.

    `tokenizer.path` is represented by the fingerprint of its file, so that the path itself does not matter.
    """
    keys = "source", "format", "field", "sentences", "heldout"
    made = {f"corpus.{key}": config.corpus[key] for key in keys}
    made |= {f"filter.{key}": value for key, value in config.filter.items()}
    if config.tokenizer.path:
        return made | {"tokenizer.path": tokenizer_from_file(config).fingerprint}
    keys = "kind", "size", "lowercase", "sample"
    return made | {f"tokenizer.{key}": config.tokenizer[key] for key in keys}


def differences(directory: Path, recorded: dict, requested: dict) -> str:
    """Describes in one line the keys that differ between a manifest and a config; '' if none do.

    recorded: the keys in the manifest of `directory`. requested: those of the config. A key that is absent from one of
    them reads as None. If the config names a vocabulary file, its fingerprint is compared with that of the tokenizer in
    `directory`, whether that one was trained or read from a file.
    """
    if "tokenizer.path" in requested:
        recorded = {key: recorded[key] for key in recorded if not key.startswith("tokenizer.")}
        recorded["tokenizer.path"] = tokenizers.load(directory / "tokenizer").fingerprint
    requested = json.loads(json.dumps(requested))  # converts tuples to lists, as in the manifest
    return "; ".join(
        f"config.{key}: built with {recorded.get(key)!r}, the config has {requested.get(key)!r}"
        for key in sorted(requested | recorded)
        if recorded.get(key) != requested.get(key)
    )
