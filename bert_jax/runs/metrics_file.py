"""Reads metrics.jsonl: each line is a JSON object, the report of a split at a step. samples.jsonl has the same form."""

import contextlib
import io
import json
from pathlib import Path

import numpy as np

from bert_jax.errors import BadInput, one_line
from bert_jax.storage import atomic

METRICS = "step", "split", "seconds"  # keys that every line of metrics has
SAMPLES = "step", "split", "row"


def lines(path: Path, keys: tuple[str, ...] = METRICS) -> list[dict]:
    """Returns the lines of a file, [] if it does not exist. Skips lines that are invalid, such as one that a kill
    truncated, or lack one of these keys.

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
            if isinstance(values, dict) and values.keys() >= {*keys}:
                reports.append(values)
    return reports


def columns(path: Path) -> dict[str, dict[str, np.ndarray]]:
    """Returns {split: {key: float64[N]}} of the N lines of each split, NaN where a line has no number. Texts are left
    out, and so are invalid lines. A million lines take seconds.

    Raises BadInput if the file cannot be read.
    """
    from pyarrow import ArrowInvalid, compute, types
    from pyarrow.json import read_json

    try:
        text = path.read_bytes() if path.exists() else b""
        complete = text[: text.rfind(b"\n") + 1]
        table = read_json(io.BytesIO(complete)) if complete else None
    except ArrowInvalid:  # an invalid line, or a key with numbers and texts
        texts = [json.dumps(numbers(line)) for line in lines(path)]
        table = read_json(io.BytesIO("\n".join(texts).encode())) if texts else None
    except OSError as error:
        raise BadInput(f"{path}: unreadable ({one_line(error)})") from None
    if table is None or "split" not in table.column_names:
        return {}
    result = {}
    for split in table["split"].unique().to_pylist():
        part = table.filter(compute.equal(table["split"], split))
        result[split] = {
            name: column.cast("float64").to_numpy()
            for name, column in zip(part.column_names, part.columns, strict=True)
            if types.is_integer(column.type) or types.is_floating(column.type)
        }
    return result


def numbers(line: dict) -> dict:
    """Returns a line without texts, but its split."""
    return {key: float(value) for key, value in line.items() if isinstance(value, int | float)} | {
        "split": line["split"]
    }


def drop_after(path: Path, step: int, keys: tuple[str, ...] = METRICS) -> None:
    """Deletes the lines after `step`: the resumed run reports those steps again."""
    if path.exists():
        remaining = [f"{json.dumps(line)}\n" for line in lines(path, keys) if line["step"] <= step]
        atomic.write(path, "".join(remaining))
