"""The lines of metrics.jsonl: one object for each report of a split."""

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path

from bert_jax.errors import BadInput
from bert_jax.storage import atomic


def lines(path: Path) -> list[dict]:
    """The lines of a file, none where it is missing; what is none, as a line that a kill cut off, is left out.

    Raises BadInput where it cannot be read.
    """
    if not os.path.lexists(path):
        return []
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise BadInput(f"{path}: unreadable ({error})") from None
    return list(parse(text))


def parse(text: str) -> Iterator[dict]:
    for line in text.split("\n")[:-1]:
        with contextlib.suppress(ValueError, RecursionError):
            values = json.loads(line)
            if isinstance(values, dict) and is_report(values):
                yield values


def is_report(values: dict) -> bool:
    step, split, seconds = (values.get(key) for key in ("step", "split", "seconds"))
    return type(step) is int and isinstance(split, str) and type(seconds) in (int, float)


def drop_after(path: Path, step: int) -> None:
    """Keeps the lines up to `step`: what comes after is reported again by the resumed run."""
    if path.exists():
        kept = [line for line in lines(path) if line["step"] <= step]
        atomic.write(path, "".join(json.dumps(line) + "\n" for line in kept))
