"""Reads JSON objects of a run, a model or a config, which may be damaged; writes results."""

import json
from pathlib import Path

from bert_jax.errors import BadInput
from bert_jax.storage import atomic


def read(path: Path) -> dict:
    """Reads a JSON object. Raises BadInput, which names the path, if it is not one."""
    try:
        values = json.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError, RecursionError) as error:
        raise BadInput(f"{path}: unreadable ({error})") from None
    if not isinstance(values, dict):
        raise BadInput(f"{path}: not a JSON object")
    return values


def read_optional(path: Path) -> dict:
    """Reads a JSON object; {} if there is no such file."""
    return read(path) if path.is_file() else {}


def write(path: Path, values: dict, sync: bool = True, **keys) -> None:
    """Writes JSON atomically, see `atomic.file`. keys: of json.dumps."""
    atomic.write(path, json.dumps(values, indent=2, **keys) + "\n", sync=sync)


def encode(values, **keys) -> str:
    """Returns results as JSON, with null for NaN and infinity, which it lacks. keys: of json.dumps."""
    finite = json.loads(json.dumps(values), parse_constant=lambda name: None)
    return json.dumps(finite, **keys)
