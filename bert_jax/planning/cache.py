"""What the compiler said of a program, kept beside the compiled programs: minutes of compiling become seconds.

Entries are JSON with a digest of their own: one that is damaged is as good as none.
"""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

from bert_jax.storage import atomic

FOLDER = "plans"


def digest(*texts: str) -> str:
    parts = [hashlib.sha256(text.encode()).hexdigest() for text in texts]
    return hashlib.sha256(" ".join(parts).encode()).hexdigest()


def read(directory: Path | None, key: str, unpack: Callable[[dict], object]):
    """What `unpack` makes of an entry; None where there is none, or where it is damaged, or no directory."""
    if not directory:
        return None
    try:
        entry = json.loads((directory / FOLDER / f"{key}.json").read_bytes())
        return unpack(entry["values"]) if entry["digest"] == of(key, entry["values"]) else None
    except (OSError, ValueError, LookupError, TypeError):
        return None


def write(directory: Path | None, key: str, values: dict) -> str:
    """Whole or not at all; why it could not be written, and is made again the next time, or ''."""
    if not directory:
        return ""
    path = directory / FOLDER / f"{key}.json"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        atomic.write(path, json.dumps({"digest": of(key, values), "values": values}), sync=False)
    except OSError as error:
        return error.strerror
    return ""


def of(key: str, values: dict) -> str:
    return digest(key, json.dumps(values, sort_keys=True))
