"""The config keys that a store or saved batches were built from, and their comparison with another config."""

import json
from pathlib import Path

from bert_jax.data.vocabulary import given_vocabulary
from bert_jax.tokenizers import tokenizer as tokenizers


def made_from(config) -> dict:
    """Returns the config keys and values that decide a store's content.

    `tokenizer.path` is represented by the fingerprint of its file, so that the path itself does not matter.
    """
    keys = "source", "format", "field", "sentences", "heldout"
    made = {f"corpus.{key}": config.corpus[key] for key in keys}
    made |= {f"filter.{key}": value for key, value in config.filter.items()}
    if config.tokenizer.path:
        return made | {"tokenizer.path": given_vocabulary(config).fingerprint}
    keys = "kind", "size", "lowercase", "sample"
    return made | {f"tokenizer.{key}": config.tokenizer[key] for key in keys}


def differing(directory: Path, there: dict, asked: dict) -> str:
    """Describes in one line the keys that differ between a manifest and a config; '' if none do.

    recorded: the keys in the manifest of `directory`. requested: those of the config. A key that is absent from one of
    them reads as None. If the config names a vocabulary file, its fingerprint is compared with that of the tokenizer in
    `directory`, whether that one was trained or read from a file.
    """
    if "tokenizer.path" in asked:
        there = {key: there[key] for key in there if not key.startswith("tokenizer.")}
        there["tokenizer.path"] = tokenizers.load(directory / "tokenizer").fingerprint
    asked = json.loads(json.dumps(asked))  # converts tuples to lists, as in the manifest
    return "; ".join(
        f"config.{key}: built with {there.get(key)!r}, the config has {asked.get(key)!r}"
        for key in sorted(asked | there)
        if there.get(key) != asked.get(key)
    )
