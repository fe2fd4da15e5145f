"""The report of a run, or of several runs side by side: curves, time, samples, text, config; one HTML file."""

import itertools
import os
from collections.abc import Callable, Iterator
from html import escape
from pathlib import Path

import numpy as np

from bert_jax import config as configs
from bert_jax.errors import one_line
from bert_jax.pages import charts, corpus, history, html, samples
from bert_jax.pages.charts import Figures
from bert_jax.pages.history import TRAIN, History
from bert_jax.runs import status
from bert_jax.runs.workdir import Workdir, stamp
from bert_jax.storage import atomic

STYLE = Path(__file__).with_suffix(".css")
FILE = "report.html"  # in the workdir of a run that is done
# Keys of metrics.jsonl without a chart; those of PROCESS are the last charts.
HIDDEN = "step time seconds step_seconds input_seconds rows_per_second peak_bytes skipped spikes"
PROCESS = "learning_rate gradient_norm tokens_per_second model_flops_utilization real_token_share"
SHAPES = {"skipped": "cross", "spikes": "triangle-down"}
STARTS = "UTC", "from step", "to step", "hours", "hours of the interruption before"


def write(runs: list[Workdir], output: Path) -> dict[str, dict]:
    """Writes the report of runs; returns {name of a run: its numbers}, see `facts`.

    Raises BadInput for what is no run, or has no metrics yet.
    """
    histories = [history.read(run) for run in runs]
    atomic.write(output, page(histories))
    return {run.name: facts(run) for run in histories}


def write_at_end(run: Workdir, log: Callable[[str], None]) -> None:
    """Writes the report of a run that is done to its workdir. An error becomes a line of the log."""
    try:
        write([run], run.directory / FILE)
        log(f"report: {run.name}/{FILE}")
    except Exception as error:  # what was trained is saved
        log(f"{run.name}/{FILE} was not written: {one_line(error)}")


def page(runs: list[History]) -> str:
    """Returns the report as HTML."""
    figures = Figures()
    names = [run.name for run in runs]
    values = [facts(run) for run in runs]
    drawn = draw_metrics(figures, runs)
    parts = [
        table(values, ("", *names)),
        "<h2>Curves</h2>",
        *drawn[:1],
        charts.side_by_side(drawn[1:]),
        "<h2>Time</h2>",
        draw_progress(figures, runs),
    ]
    for run in runs:
        parts.append(f"<h2>{escape(run.name)}</h2>")
        bars = charts.bars(history.hours(run), "hours")
        parts.append(figures.add(bars, "where the time went"))
        parts.append(html.table([*rows_of_starts(run)], STARTS))
        parts += samples.describe(run)
        parts += corpus.describe(figures, run)
    parts.append("<h2>Config</h2>")
    if len(runs) == 1:
        rows = [[key, *pair] for key, pair in configs.changes(runs[0].config).items()]
        parts.append(html.table(rows, ("key", "base", "here")))
    else:
        parts.append(table([configs.flatten(run.config) for run in runs], ("key", *names), True))
    title = f"Report of {', '.join(names)}"
    return html.document(title, "\n".join(parts), STYLE.read_text(), figures.scripts())


def table(columns: list[dict], heads: tuple[str, ...], is_difference: bool = False) -> str:
    """Returns a table with a column for each dict and a row for each key. is_difference: only of keys that differ."""
    rows = []
    for key in dict.fromkeys(itertools.chain(*columns)):
        row = [column.get(key, "") for column in columns]
        if not is_difference or any(value != row[0] for value in row):
            rows.append([key, *row])
    return html.table(rows, heads)


def facts(run: History) -> dict[str, str]:
    """Returns {name: text} of the state of a run and of its last numbers."""
    train = run.metrics[TRAIN]
    tokens = np.nansum(train["tokens_per_second"] * train["seconds"])
    values = {
        "state": status.describe(run.status),
        "network": f"{run.config.model.name}, {run.info['parameters']:,} parameters",
        "objective": run.config.objective.name,
        "devices": ", ".join(run.info["devices"]),
        "real tokens": f"{tokens:,.0f}",
    }
    for key in SHAPES:
        values[f"{key}, in steps"] = f"{history.count(run, key).sum():,.0f}"
    for name, split, columns in series(run):
        last = np.flatnonzero(np.isfinite(columns[name]))[-1]
        number = columns[name][last]
        values[f"{split} {name}"] = f"{number:.4g} at step {columns['step'][last]:,.0f}"
    return values


# --- Curves ---------------------------------------------------------------------------------------


def series(run: History) -> Iterator[tuple[str, str, dict]]:
    """Yields (metric, split, the columns of its lines) of those that have values: the metric to watch first, then
    losses, scores, and PROCESS."""
    process = PROCESS.split()

    def rank(name: str) -> tuple:
        order = process.index(name) + 1 if name in process else 0
        return name != run.headline, order, "loss" not in name, name

    names = {*itertools.chain(*run.metrics.values())} - {*HIDDEN.split()}
    for name in sorted(names, key=rank):
        for split, columns in run.metrics.items():
            if np.isfinite(columns.get(name, np.nan)).any():
                yield name, split, columns


def draw_metrics(figures: Figures, runs: list[History]) -> list[str]:
    """Returns a chart for each metric, with the curves of all splits and runs."""
    lines = {}
    levels = {}
    start = os.path.commonprefix([run.name for run in runs]).rfind("/") + 1
    for run in runs:
        prefix = f"{run.name[start:]} " if len(runs) > 1 else ""
        for name, split, columns in series(run):
            curve = charts.points(columns["step"], columns[name], line=prefix + split)
            lines[name] = lines.get(name, []) + curve
        level = {"text": "token frequencies", "y": run.info["unigram_entropy"]}
        if level not in levels.setdefault(run.headline, []):  # runs of one store have the same
            levels[run.headline].append(level)
    has_shades = len(runs) == 1 and len(runs[0].config.phase_order) > 1
    shades = phases(runs[0]) if has_shades else []
    parts = []
    for name, curves in lines.items():
        if len({point["x"] for point in curves}) < 2:
            continue  # the first table has its number
        marks = [*itertools.chain(*map(marks_of, runs))] if name == "loss" else []
        sets = dict(lines=curves, shades=shades, levels=levels.get(name, []), marks=marks)
        spec = charts.spec("curves", {"x": "step", "y": name}, **sets)
        parts.append(figures.add(spec, name))
    return parts


def phases(run: History) -> list[dict]:
    """Returns the phases that a run has reached as `shades`, see charts.spec."""
    last = float(run.metrics[TRAIN]["step"].max())
    return [
        {
            "text": phase.name,
            "x": phase.first,
            "x2": min(phase.stop, last),
            "opacity": 0.1 * (phase.number % 2),
        }
        for phase in configs.phases(run.config)
        if phase.first < last
    ]


def marks_of(run: History) -> list[dict]:
    """Returns the lines with spikes or skipped steps as `marks`, see charts.spec."""
    marks = []
    for key, shape in SHAPES.items():
        numbers = history.count(run, key)
        chosen = numbers > 0
        steps = run.metrics[TRAIN]["step"][chosen]
        marks += charts.points(steps, numbers[chosen], text=f"{key} of {run.name}", shape=shape)
    return marks


# --- Time -----------------------------------------------------------------------------------------


def draw_progress(figures: Figures, runs: list[History]) -> str:
    """Returns the steps of all runs over time, with a part of a line for each start."""
    lines = []
    for run in runs:
        train = run.metrics[TRAIN]
        for part, start in enumerate(run.starts):
            inside = (train["time"] >= start.compiled) & (train["time"] <= start.ended)
            times = np.array([start.compiled, *train["time"][inside]])
            steps = np.array([start.step, *train["step"][inside]])
            hours = (times - run.starts[0].began) / 3600
            lines += charts.points(hours, steps, line=run.name, part=part)
    spec = charts.spec("curves", {"x": "hours since the first start", "y": "step"}, lines=lines)
    return figures.add(spec, "a gap is an interruption, with the steps that were lost in it")


def rows_of_starts(run: History) -> Iterator[list]:
    """Yields a row for each start of a run, see STARTS."""
    for start, gap in zip(run.starts, [0.0, *history.gaps(run)], strict=True):
        hours = f"{(start.ended - start.began) / 3600:.3f}"
        yield stamp(start.began), start.step, start.last_step, hours, f"{gap / 3600:.3f}"
