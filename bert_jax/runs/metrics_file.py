"""Reads metrics.jsonl: each line is a JSON object, the report of a split at a step."""

import contextlib
import json
from pathlib import Path

from bert_jax.errors import BadInput
from bert_jax.storage import atomic


def lines(path: Path) -> list[dict]:
    """Returns the lines of a file, [] if it does not exist. Skips invalid lines, such as one that a kill truncated.

    Raises BadInput if the file cannot be read.
    """
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return []
    except OSError as error:
        raise BadInput(f"{path}: unreadable ({error})") from None
    reports = []
    for line in text.split("\n")[:-1]:  # a last line without a line end is incomplete
        with contextlib.suppress(ValueError, RecursionError):
            values = json.loads(line)
            if isinstance(values, dict) and values.keys() >= {"step", "split", "seconds"}:
                reports.append(values)
    return reports


def drop_after(path: Path, step: int) -> None:
    """Deletes the lines after `step`: the resumed run reports those steps again."""
    if path.exists():
        remaining = [f"{json.dumps(line)}\n" for line in lines(path) if line["step"] <= step]
        atomic.write(path, "".join(remaining))
