"""What a store, or saved batches, are made from, by key of the config; and whether a config asks for the same."""

import json
from pathlib import Path

from bert_jax.data.vocabulary import given_vocabulary
from bert_jax.tokenizers import tokenizer as tokenizers


def made_from(config) -> dict:
    """What decides a store's content, by key of the config; a vocabulary counts by its content, not its place."""
    keys = "source", "format", "field", "sentences", "heldout"
    made = {f"corpus.{key}": config.corpus[key] for key in keys}
    made |= {f"filter.{key}": value for key, value in config.filter.items()}
    if config.tokenizer.path:
        return made | {"tokenizer.path": given_vocabulary(config).fingerprint}
    keys = "kind", "size", "lowercase", "sample"
    return made | {f"tokenizer.{key}": config.tokenizer[key] for key in keys}


def differing(directory: Path, there: dict, asked: dict) -> str:
    """The keys whose values are not the same, in a line: those of the manifest of `directory`, and those of a config;
    None where a key is not used. A given vocabulary has to cut the text as the directory's tokenizer does, whether that
    was given or trained."""
    if "tokenizer.path" in asked:
        there = {key: there[key] for key in there if not key.startswith("tokenizer.")}
        there["tokenizer.path"] = tokenizers.load(directory / "tokenizer").fingerprint
    asked = json.loads(json.dumps(asked))  # tuples become lists, as in the manifest
    return "; ".join(
        f"config.{key}: {there.get(key)!r} there, {asked.get(key)!r} asked for"
        for key in sorted(asked | there)
        if there.get(key) != asked.get(key)
    )
