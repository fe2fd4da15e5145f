"""The status of a run, read from its workdir."""

import calendar
import time
from pathlib import Path

import numpy as np

from bert_jax.checkpoints import reader
from bert_jax.errors import BadInput
from bert_jax.runs import lock, metrics_file, workdir
from bert_jax.storage import json_file

BARS = "▁▂▃▄▅▆▇█"
WIDTH = 40  # bars at most
SILENT = 60.0  # seconds without a heartbeat; a slow file system may delay several heartbeats
TYPES = {
    "state": str,
    "step": int,
    "steps": int,
    "pid": int,
    "host": str,
    "time": str,
}


def status(directory: Path, checkpoints: Path | None = None) -> dict:
    """Returns status.json and `last_checkpoint`.

    checkpoints: their directory, by default that in the workdir.

    `state` is imported, running, done, preempted, interrupted or failed. Instead of running it is killed if no process
    holds the run's lock (known on its own machine only), or silent if its heartbeat is missing. Raises BadInput if it
    is not the status of a run.
    """
    path = directory / "status.json"
    if not path.is_file():
        raise BadInput(f"{directory}: not a run (no status.json)")
    values = json_file.read(path)
    invalid = [key for key, expected in TYPES.items() if type(values.get(key)) is not expected]
    if invalid:
        raise BadInput(f"{path}: not the status of a run: {invalid[0]} is missing or invalid")
    if values["state"] == "running":
        values["state"] = live_state(path, values)
    values["last_checkpoint"] = reader.newest(checkpoints or directory / workdir.CHECKPOINTS)
    return values


def live_state(path: Path, values: dict) -> str:
    """Returns the state of a run that says it is running: running, silent or killed."""
    silence = seconds_since(path, values, "time")
    seconds_since(path, values, "progress")  # raises if it is not a time
    if values["host"] == lock.this_process()["host"] and lock.is_free(path.parent):
        return "killed"
    return "silent" if silence > SILENT else "running"


def seconds_since(path: Path, values: dict, key: str) -> float:
    """Returns the seconds since the time under `key`. Raises BadInput if it is not a time."""
    try:
        return time.time() - calendar.timegm(time.strptime(values[key], workdir.TIME))
    except (KeyError, TypeError, ValueError):
        raise BadInput(f"{path}: not the status of a run: {key} is missing or invalid") from None


def describe(values: dict) -> str:
    """Describes a status in one line."""
    parts = [values["state"], f"step {values['step']} of {values['steps']}"]
    if isinstance(values.get("loss"), float):
        parts.append(f"training loss {values['loss']:.4f}")
    if values["state"] == "running":
        parts.append(f"{values.get('seconds_left')} seconds left")
    if values["state"] in ("running", "silent", "killed"):
        parts.append(f"last progress {values['progress']}")
    if values["state"] in ("silent", "killed"):
        parts.append(f"last heartbeat {values['time']}")
    newest = values["last_checkpoint"]
    parts.append("no checkpoint yet" if newest is None else f"last checkpoint {newest}")
    if values.get("error"):
        parts.append(values["error"])
    return ", ".join(parts)


def draw_losses(path: Path) -> str:
    """Draws the training losses of metrics.jsonl as WIDTH bars or fewer, from the least to the greatest. A bar is the
    mean of its share of the lines. Returns "" without a finite loss."""
    losses = metrics_file.columns(path).get("train", {}).get("loss", np.zeros(0))
    losses = losses[np.isfinite(losses)]
    if not len(losses):
        return ""
    shares = np.array_split(losses, min(WIDTH, len(losses)))
    means = [share.mean() for share in shares]
    levels = np.linspace(min(means), max(means), len(BARS))
    bars = "".join(BARS[level - 1] for level in np.digitize(means, levels))
    return f"loss {bars} {losses[0]:.2f} to {losses[-1]:.2f}"
