"""What a run has left in its workdir, as plain data: its metrics, starts, phases, and where its time went."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from ml_collections import ConfigDict

from bert_jax import config as configs
from bert_jax.errors import BadInput
from bert_jax.runs import metrics_file, open_run, status, workdir
from bert_jax.runs.workdir import Workdir

TRAIN = "train"  # the split of the lines about training


class Start(NamedTuple):
    """A start of a run, and the end of what it trained. Times are in seconds since the epoch."""

    step: int  # from which it goes on
    time: float  # when its programs were compiled
    compile_seconds: float
    last_step: int  # of its last line of metrics that no later start repeated; `step` without one
    last_time: float  # of this line


class History(NamedTuple):
    """The files of a run."""

    name: str
    config: ConfigDict
    info: dict  # run.json
    status: dict  # status.json, see runs/status.py
    metrics: dict[
        str, dict[str, np.ndarray]
    ]  # {split: {key: float64[N]}}, see metrics_file.columns
    starts: list[Start]
    headline: str  # the metric to watch; '' without one
    samples: list[dict]  # the lines of samples.jsonl

    @property
    def train(self) -> dict[str, np.ndarray]:
        """The lines about training; those of no step if there are none."""
        nothing = dict.fromkeys(("step", "time", "seconds", "step_seconds"), np.zeros(0))
        return self.metrics.get(TRAIN, nothing)


def read(run: Workdir) -> History:
    """Reads the files of a run. Raises BadInput if it is none, or has no metrics yet."""
    directory = run.directory
    if not open_run.is_run(directory):
        raise BadInput(f"--workdir {run.name}: not a run (no run.json)")
    info = workdir.read_info(directory)
    latest = {}
    reports = watch(metrics_file.each(directory / "metrics.jsonl"), latest)
    metrics = metrics_file.columns(reports)
    if not metrics:
        raise BadInput(f"--workdir {run.name}: no metrics yet; wait for the first line of the log")
    for split, columns in metrics.items():
        for key in ("step", "time", "seconds"):
            if key not in columns:
                raise BadInput(f"{directory}/metrics.jsonl: {key} of {split} is not a number")
    headlines = [line["headline"] for line in latest.values() if "headline" in line]
    return History(
        run.name,
        configs.read(directory / "config.json"),
        info,
        status.status(directory, run.checkpoints),
        metrics,
        [*find_starts(info.get("starts", []), metrics)],
        headlines[0].partition(" ")[0] if headlines else "",
        metrics_file.lines(directory / "samples.jsonl", metrics_file.SAMPLES),
    )


def watch(reports: Iterator[dict], latest: dict[str, dict]) -> Iterator[dict]:
    """Yields lines of metrics, and sets {split: its latest line}."""
    for line in reports:
        latest[line["split"]] = line
        yield line


def find_starts(starts: list[dict], metrics: dict) -> Iterator[Start]:
    """Yields the starts of a run. starts: those of run.json."""
    times = np.concatenate([columns["time"] for columns in metrics.values()])
    steps = np.concatenate([columns["step"] for columns in metrics.values()])
    begins = [start["time"] - start["compile_seconds"] for start in starts[1:]]
    for start, end in zip(starts, [*begins, np.inf], strict=True):
        inside = (times >= start["time"]) & (times < end)
        last_step = int(steps[inside].max(initial=start["step"]))
        last_time = float(times[inside].max(initial=start["time"]))
        keys = start["step"], start["time"], start["compile_seconds"]
        yield Start(*keys, last_step, last_time)


def number_of_steps(columns: dict[str, np.ndarray]) -> np.ndarray:
    """Returns float64[N], the steps of each line about training."""
    return np.rint(columns["seconds"] / columns["step_seconds"])


def events(columns: dict[str, np.ndarray], key: str) -> tuple[np.ndarray, int]:
    """Returns which lines about training have spikes or skipped steps, int64[M], and the number of these steps.

    key: `spikes` or `skipped`, the share of the steps of a line.
    """
    if key not in columns:
        return np.zeros(0, np.int64), 0
    shares = np.nan_to_num(columns[key])
    counts = np.rint(shares * np.nan_to_num(number_of_steps(columns)))
    return np.flatnonzero(shares > 0), int(counts.sum())


def seconds(run: History) -> dict[str, float]:
    """Returns {purpose: seconds} of the time from the first start to the last line of metrics.

    An interruption lasts from the last line that is not repeated to the next start, so it has the steps that were lost.
    """
    train = run.train
    waiting = float(np.nansum(train.get("input_seconds", 0)))
    evaluated = [columns for split, columns in run.metrics.items() if split != TRAIN]
    result = {
        "steps": float(np.nansum(train["seconds"])) - waiting,
        "waiting for batches": waiting,
        "evaluation": sum(float(np.nansum(columns["seconds"])) for columns in evaluated),
        "compilation": sum(start.compile_seconds for start in run.starts),
        "interruptions": sum(gaps(run)),
    }
    if run.starts:
        first = run.starts[0]
        total = run.starts[-1].last_time - first.time + first.compile_seconds
        result["other, such as saves"] = max(0.0, total - sum(result.values()))
    return result


def gaps(run: History) -> list[float]:
    """Returns the seconds of the interruption before each start but the first."""
    return [
        max(0.0, after.time - after.compile_seconds - before.last_time)
        for before, after in zip(run.starts, run.starts[1:], strict=False)
    ]


def phases(run: History) -> list[tuple[str, int, int]]:
    """Returns (name, first step, last step) of the phases that the run has reached."""
    last = max(float(columns["step"].max()) for columns in run.metrics.values())
    reached = [phase for phase in configs.phases(run.config) if phase.first < last]
    return [(phase.name, phase.first, min(phase.stop, int(last))) for phase in reached]
