"""Reads metrics.jsonl: each line is a JSON object, the report of a split at a step."""

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path

from bert_jax.errors import BadInput
from bert_jax.storage import atomic


def lines(path: Path) -> list[dict]:
    """Returns the lines of a file, [] if it does not exist. Skips invalid lines, such as one that a kill truncated.

    Raises BadInput if the file cannot be read.
    """
    if not os.path.lexists(path):
        return []
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise BadInput(f"{path}: unreadable ({error})") from None
    return list(parse(text))


def parse(text: str) -> Iterator[dict]:
    """Yields the valid lines of a text; a last line without a line end is incomplete."""
    for line in text.split("\n")[:-1]:
        with contextlib.suppress(ValueError, RecursionError):
            values = json.loads(line)
            if isinstance(values, dict) and is_report(values):
                yield values


def is_report(values: dict) -> bool:
    """Returns whether a JSON object has the keys of every line."""
    step, split, seconds = (values.get(key) for key in ("step", "split", "seconds"))
    return type(step) is int and isinstance(split, str) and type(seconds) in (int, float)


def drop_after(path: Path, step: int) -> None:
    """Deletes the lines after `step`: the resumed run reports those steps again."""
    if path.exists():
        kept = [line for line in lines(path) if line["step"] <= step]
        atomic.write(path, "".join(json.dumps(line) + "\n" for line in kept))
