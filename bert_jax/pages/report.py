"""The report of a run, or of several runs side by side: curves, time, config; one HTML file."""

import itertools
from collections.abc import Callable
from datetime import timedelta
from html import escape
from pathlib import Path

import numpy as np

from bert_jax import config as configs
from bert_jax.errors import one_line
from bert_jax.pages import charts, corpus, history, html, samples
from bert_jax.pages.charts import Curve, Figures, Marks
from bert_jax.pages.history import History
from bert_jax.runs.workdir import Workdir, stamp
from bert_jax.storage import atomic

STYLE = Path(__file__).with_suffix(".css")
FILE = "report.html"  # in the workdir of a run that has ended
# {key of metrics.jsonl: title of its chart}, in their order after the losses and scores.
PROCESS = {
    "learning_rate": "learning rate",
    "gradient_norm": "gradient norm",
    "tokens_per_second": "real tokens a second",
    "model_flops_utilization": "model FLOPs utilization",
    "real_token_share": "share of real tokens",
}
HIDDEN = "step time seconds step_seconds input_seconds rows_per_second peak_bytes skipped spikes"
HEADLINES = {"headline": 0, "loss": 1, "_loss": 2, "_accuracy": 3}  # ends of names, in their order


def write(runs: list[Workdir], output: Path) -> dict[str, dict]:
    """Writes the report of runs; returns the summary and the seconds of each, by its name.

    Raises BadInput for what is no run, or has no metrics yet.
    """
    histories = [history.read(run) for run in runs]
    atomic.write(output, page(histories))
    return {run.name: {"summary": facts(run), "seconds": history.seconds(run)} for run in histories}


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
    title = f"Report of {runs[0].name}" if len(runs) == 1 else f"Report of {len(runs)} runs"
    body = "\n".join(
        [
            section("Summary", html.table(summarize(runs), ("", *(run.name for run in runs)))),
            section("Curves", *draw_metrics(figures, runs)),
            section("Time", *of_each(describe_time, figures, runs), draw_progress(figures, runs)),
            section("Samples of held-out rows", *of_each(samples.describe, figures, runs)),
            section("Corpus", *of_each(corpus.describe, figures, runs)),
            section("Config", describe_config(runs)),
        ]
    )
    return html.document(title, body, STYLE.read_text(), figures.scripts())


def of_each(describe: Callable, figures: Figures, runs: list[History]) -> list[str]:
    """Returns what `describe` (figures, run) -> HTML returns of each run, with its name if there are several."""
    parts = []
    for run in runs:
        described = describe(figures, run)
        if described and len(runs) > 1:
            parts.append(f"<h3>{escape(run.name)}</h3>")
        parts += described
    return parts


def section(title: str, *parts: str) -> str:
    """Returns a section of the page, '' without parts. parts: HTML."""
    if not parts:
        return ""
    return "\n".join([f"<h2>{escape(title)}</h2>", *parts])


# --- Numbers --------------------------------------------------------------------------------------


def summarize(runs: list[History]) -> list[list]:
    """Returns the rows of a table with a column for each run."""
    columns = [facts(run) for run in runs]
    names = dict.fromkeys(itertools.chain(*columns))
    return [[name, *(column.get(name, "") for column in columns)] for name in names]


def facts(run: History) -> dict[str, str]:
    """Returns {name: text} of what a run is, and of its last numbers."""
    info = run.info
    train = run.train
    model = run.config.model
    size = " x ".join(str(model[key]) for key in ("layers", "width") if key in model)
    tokens = float(np.nansum(train.get("tokens_per_second", 0) * train["seconds"]))
    values = {
        "state": f"{run.status['state']}, step {run.status['step']} of {run.status['steps']}",
        "model": f"{model.name} {size}",
        "objective": run.config.objective.name,
        "parameters": f"{info['parameters']:,}",
        "devices": describe_devices(info.get("devices", [])),
        "real tokens trained on": f"{tokens:,.0f}",
        "time of steps": duration(float(np.nansum(train["seconds"]))),
        "loss of token frequencies": f"{info['unigram_entropy']:.4g} nats",
    }
    for key, name in (("skipped", "skipped steps"), ("spikes", "loss spikes")):
        _, number = history.events(train, key)
        values[name] = f"{number:,}"
    for split, columns in run.metrics.items():
        for key in names_of_metrics([run]):
            numbers = columns.get(key, np.zeros(0))
            finite = np.flatnonzero(np.isfinite(numbers))
            if len(finite):
                step = int(columns["step"][finite[-1]])
                values[f"{split} {key}"] = f"{numbers[finite[-1]]:.4g} at step {step:,}"
    return values


def describe_devices(devices: list[str]) -> str:
    counts = {name: devices.count(name) for name in devices}
    return ", ".join(f"{count} x {name}" for name, count in counts.items())


def duration(seconds: float) -> str:
    """Formats seconds, as 1 day, 2:03:04."""
    return str(timedelta(seconds=round(seconds)))


# --- Curves ---------------------------------------------------------------------------------------


def names_of_metrics(runs: list[History]) -> list[str]:
    """Returns the metrics that have a chart, in the order of their charts: what to watch, losses, other scores, and
    then those of PROCESS."""
    columns = itertools.chain(*(run.metrics.values() for run in runs))
    names = {*itertools.chain(*columns)} - {*HIDDEN.split()}
    headlines = {run.headline for run in runs}

    def rank(name: str) -> tuple:
        if name in PROCESS:
            return len(HEADLINES) + 1 + [*PROCESS].index(name), name
        if name in headlines:
            return 0, name
        ends = [number for end, number in HEADLINES.items() if name.endswith(end)]
        return min(ends, default=len(HEADLINES)), name

    return sorted(names, key=rank)


def draw_metrics(figures: Figures, runs: list[History]) -> list[str]:
    """Returns a chart for each metric that has a value."""
    shades = history.phases(runs[0]) if len(runs) == 1 else ()
    parts = []
    for name in names_of_metrics(runs):
        lines = [*curves_of(runs, name)]
        if not any(np.isfinite(line.y).any() for line in lines):
            continue
        title = PROCESS.get(name, name)
        levels = {}
        marks = []
        for run in runs:
            if name == run.headline:
                beside = f" of {run.name}" if len(runs) > 1 else ""
                levels[f"token frequencies alone{beside}"] = run.info["unigram_entropy"]
            if name == "loss":
                marks += marks_of(run)
        spec = charts.curves(lines, ("step", title), shades, levels, marks)
        parts.append(figures.add(spec, title))
    return parts


def curves_of(runs: list[History], name: str):
    """Yields the curves of a metric: one for each split, and of several runs for each of them."""
    for run in runs:
        for split, columns in run.metrics.items():
            if name in columns:
                labels = (run.name, split) if len(runs) > 1 else (split, "")
                yield Curve(labels[0], columns["step"], columns[name], labels[1])


def marks_of(run: History) -> list[Marks]:
    """Returns the spikes and the skipped steps of a run as points on its training loss."""
    train = run.train
    loss = train.get("loss", np.zeros(0))
    finite = np.isfinite(loss)
    if not finite.any():
        return []
    # A line whose steps were all skipped has no loss.
    loss = np.interp(train["step"], train["step"][finite], loss[finite])
    marks = []
    for key, kind in zip(("spikes", "skipped"), charts.SHAPES, strict=True):
        chosen, _ = history.events(train, key)
        steps = train["step"][chosen]
        drawn = charts.decimate(steps, loss[chosen])
        marks.append(Marks(kind, steps[drawn], loss[chosen][drawn]))
    return marks


# --- Time -----------------------------------------------------------------------------------------


def describe_time(figures: Figures, run: History) -> list[str]:
    """Returns where the time went, and the starts and interruptions."""
    hours = {name: seconds / 3600 for name, seconds in history.seconds(run).items()}
    return [
        figures.add(charts.bars(hours, "hours"), "where the time went"),
        html.table(rows_of_starts(run), STARTS),
    ]


def draw_progress(figures: Figures, runs: list[History]) -> str:
    """Returns the steps of all runs over time."""
    spec = charts.curves([*progress(runs)], ("hours since the first start", "step"))
    caption = "steps over time; a gap is an interruption, with the steps that were lost in it"
    return figures.add(spec, caption)


STARTS = "start", "UTC", "from step", "to step", "compilation", "interruption before"


def rows_of_starts(run: History) -> list[list]:
    """Returns a row for each start of a run, see STARTS."""
    gaps = ["", *map(duration, history.gaps(run))]
    return [
        [
            number,
            stamp(start.time - start.compile_seconds),
            f"{start.step:,}",
            f"{start.last_step:,}",
            duration(start.compile_seconds),
            gap,
        ]
        for number, (start, gap) in enumerate(zip(run.starts, gaps, strict=True), 1)
    ]


def progress(runs: list[History]):
    """Yields the steps over time, a part for each start."""
    for run in runs:
        train = run.train
        for part, start in enumerate(run.starts):
            inside = (train["time"] >= start.time) & (train["time"] <= start.last_time)
            times = np.array([start.time, *train["time"][inside]])
            steps = np.array([start.step, *train["step"][inside]])
            first = run.starts[0].time - run.starts[0].compile_seconds
            yield Curve(run.name, (times - first) / 3600, steps, part=part)


# --- Config ---------------------------------------------------------------------------------------


def describe_config(runs: list[History]) -> str:
    """Returns the keys of a run that differ from base or, of several runs, between them."""
    if len(runs) == 1:
        changes = configs.changes(runs[0].config)
        rows = [[key, base, value] for key, (base, value) in changes.items()]
        return html.table(rows, ("key", "base", "here"))
    values = [configs.flatten(run.config) for run in runs]
    rows = []
    for key in sorted({*itertools.chain(*values)}):
        row = [each.get(key, "") for each in values]
        if any(value != row[0] for value in row):
            rows.append([key, *row])
    return html.table(rows, ("key", *(run.name for run in runs)))
