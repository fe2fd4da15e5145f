"""What a run is doing, read from its workdir alone."""

import os
from pathlib import Path

from bert_jax import workdir
from bert_jax.errors import BadInput


def status(directory: Path) -> dict:
    """status.json; a run that says it is running but whose process is gone counts as killed."""
    path = Path(directory) / "status.json"
    if not path.is_file():
        raise BadInput(f"{directory}: not a run (no status.json)")
    values = workdir.read_json(path)
    if not {"state", "step", "steps", "last_checkpoint", "pid", "host"} <= set(values):
        raise BadInput(f"{path}: not the status of a run")
    if values["state"] == "running" and values["host"] == os.uname().nodename:
        values["state"] = "running" if alive(values["pid"]) else "killed"
    return values


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # somebody else's, but there
    return True


def describe(values: dict) -> str:
    """For people, one line."""
    parts = [values["state"], f"step {values['step']} of {values['steps']}"]
    if values.get("loss") is not None:
        parts.append(f"loss {values['loss']:.4f}")
    if values["state"] == "running":
        parts.append(f"{values['seconds_left']} seconds left")
    parts.append(f"last checkpoint {values['last_checkpoint']}")
    if values.get("error"):
        parts.append(values["error"])
    return ", ".join(parts)
