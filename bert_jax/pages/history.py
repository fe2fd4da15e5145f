"""The files of a run as plain data: its metrics and starts, and the hours of its parts."""

import itertools
from typing import NamedTuple

import numpy as np
from ml_collections import ConfigDict

from bert_jax import config as configs
from bert_jax.errors import BadInput
from bert_jax.objectives import base
from bert_jax.runs import metrics_file, open_run, status, workdir
from bert_jax.runs.workdir import Workdir
from bert_jax.tokenizers.special_tokens import Vocabulary

TRAIN = "train"  # the split of the lines about training
REQUIRED = {"step", "time", "seconds", "step_seconds", "input_seconds"}


class Start(NamedTuple):
    """A start of a run, and the end of what it trained. Times are in seconds since the epoch."""

    step: int  # from which it goes on
    began: float
    compiled: float
    last_step: int  # of its last line of metrics that no later start repeated; `step` without one
    ended: float  # when this line was written


class History(NamedTuple):
    """The files of a run."""

    name: str
    config: ConfigDict
    info: dict  # run.json
    status: dict  # see runs/status.py
    metrics: dict[str, dict[str, np.ndarray]]  # see metrics_file.columns
    headline: str  # the metric to watch; '' without one
    starts: list[Start]
    samples: list[dict]  # the lines of samples.jsonl


def read(run: Workdir) -> History:
    """Reads the files of a run. Raises BadInput if it is none, or has no metrics yet."""
    directory = run.directory
    if not open_run.is_run(directory):
        raise BadInput(f"--workdir {run.name}: not a run (no run.json)")
    info = workdir.read_info(directory)
    config = configs.read(directory / "config.json")
    metrics = metrics_file.columns(directory / "metrics.jsonl")
    if not REQUIRED <= metrics.get(TRAIN, {}).keys():
        raise BadInput(f"--workdir {run.name}: has no metrics yet")
    return History(
        run.name,
        config,
        info,
        status.status(directory, run.checkpoints),
        metrics,
        base.make(config, Vocabulary(**info["vocabulary"])).headline,
        find_starts(info.get("starts", []), metrics),
        metrics_file.lines(directory / "samples.jsonl", metrics_file.SAMPLES),
    )


def find_starts(starts: list[dict], metrics: dict) -> list[Start]:
    """Returns the starts of a run. starts: those of run.json."""
    times, steps = (
        np.concatenate([columns[key] for columns in metrics.values()]) for key in ("time", "step")
    )
    result = []
    begins = [start["time"] - start["compile_seconds"] for start in starts]
    for start, began, end in zip(starts, begins, [*begins[1:], np.inf], strict=True):
        inside = (times >= began) & (times < end)
        last_step = int(steps[inside].max(initial=start["step"]))
        ended = float(times[inside].max(initial=start["time"]))
        result.append(Start(start["step"], began, start["time"], last_step, ended))
    return result


def count(run: History, key: str) -> np.ndarray:
    """Returns float64[N], how many steps of each line about training were `skipped` or `spikes`."""
    train = run.metrics[TRAIN]
    steps = train["seconds"] / train["step_seconds"]
    return np.nan_to_num(np.rint(steps * train.get(key, 0.0)))


def hours(run: History) -> dict[str, float]:
    """Returns {purpose: hours} of the time from the first start to the last line of metrics.

    An interruption lasts from the last line that is not repeated to the next start, so it has the steps that were lost.
    """
    train = run.metrics[TRAIN]
    waiting = np.nansum(train["input_seconds"])
    others = [columns for split, columns in run.metrics.items() if split != TRAIN]
    seconds = {
        "steps": np.nansum(train["seconds"]) - waiting,
        "waiting for batches": waiting,
        "evaluation": sum(np.nansum(columns["seconds"]) for columns in others),
        "compilation": sum(start.compiled - start.began for start in run.starts),
        "interruptions": sum(gaps(run)),
    }
    total = sum(start.ended - start.began for start in run.starts) + seconds["interruptions"]
    seconds["other, such as saves"] = max(0.0, total - sum(seconds.values()))
    return {name: float(number) / 3600 for name, number in seconds.items()}


def gaps(run: History) -> list[float]:
    """Returns the seconds of the interruption before each start but the first."""
    return [after.began - before.ended for before, after in itertools.pairwise(run.starts)]
