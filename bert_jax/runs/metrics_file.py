"""Reads metrics.jsonl: each line is a JSON object, the report of a split at a step. samples.jsonl has the same form."""

import contextlib
import itertools
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from bert_jax.errors import BadInput
from bert_jax.storage import atomic

METRICS = "step", "split", "seconds"  # keys that every line of metrics has
SAMPLES = "step", "split", "row"
CHUNK = 10_000  # lines that are converted to arrays at once


def each(path: Path, keys: tuple[str, ...] = METRICS) -> Iterator[dict]:
    """Yields the lines of a file, none if it does not exist. Skips lines that are invalid, such as one that a kill
    truncated, or lack one of these keys.

    Raises BadInput if the file cannot be read.
    """
    try:
        with open(path, encoding="utf-8", errors="replace", newline="\n") as file:
            for line in file:
                if not line.endswith("\n"):  # the last line is incomplete
                    return
                with contextlib.suppress(ValueError, RecursionError):
                    values = json.loads(line)
                    if isinstance(values, dict) and values.keys() >= {*keys}:
                        yield values
    except FileNotFoundError:
        return
    except OSError as error:
        raise BadInput(f"{path}: unreadable ({error})") from None


def lines(path: Path, keys: tuple[str, ...] = METRICS) -> list[dict]:
    """Returns the lines of a file, see `each`."""
    return [*each(path, keys)]


def columns(reports: Iterator[dict]) -> dict[str, dict[str, np.ndarray]]:
    """Returns {split: {key: float64[N]}} of the N lines of each split, NaN where a line has no number. Texts are left
    out."""
    chunks = {}
    while part := [*itertools.islice(reports, CHUNK)]:
        of_split = {}
        for line in part:
            of_split.setdefault(str(line["split"]), []).append(line)
        for split, chunk in of_split.items():
            chunks.setdefault(split, []).append(arrays(chunk))
    return {split: join(parts) for split, parts in chunks.items()}


def arrays(reports: list[dict]) -> dict[str, np.ndarray]:
    """Returns {key: float64[N]} of lines, without the keys that have texts."""
    result = {}
    for key in dict.fromkeys(itertools.chain(*reports)):
        with contextlib.suppress(TypeError, ValueError):
            # None becomes NaN.
            result[key] = np.array([line.get(key) for line in reports], np.float64)
    return result


def join(parts: list[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """Concatenates {key: float64[N]}; NaN for a key that a part lacks."""
    result = {}
    for key in dict.fromkeys(itertools.chain(*parts)):
        pieces = [part.get(key, np.full(len(part["step"]), np.nan)) for part in parts]
        result[key] = np.concatenate(pieces)
    return result


def drop_after(path: Path, step: int, keys: tuple[str, ...] = METRICS) -> None:
    """Deletes the lines after `step`: the resumed run reports those steps again."""
    if path.exists():
        remaining = [f"{json.dumps(line)}\n" for line in each(path, keys) if line["step"] <= step]
        atomic.write(path, "".join(remaining))
