"""`finetune`: trains a run or a model of another program on tasks with labelled examples."""

import contextlib
import itertools
import math
import sys
from functools import partial
from typing import NamedTuple

import numpy as np
from ml_collections import ConfigDict

from bert_jax import cli
from bert_jax import config as configs
from bert_jax.checks import split_list
from bert_jax.convert import finetuning
from bert_jax.data import download
from bert_jax.errors import BadInput
from bert_jax.runs import metrics_file, workdir
from bert_jax.storage import json_file, remote
from bert_jax.tasks.supervised import examples

SEARCH = "KEY=VALUE,VALUE,...: a run for each value; several keys: for each combination"
OPTIONS = [
    cli.CONFIG,
    cli.WORKDIR,
    cli.option("--seeds", "runs of each config, with the seeds from its own on", type=cli.positive),
    cli.option("--search", SEARCH, action="append", default=[], metavar="KEY=VALUES"),
    cli.AS_JSON,
]


class Trial(NamedTuple):
    """A config, which one or more runs with different seeds share."""

    task: str  # its directory in the workdir, '' if there is one; the store beside it is that of all its trials
    name: str  # learning_rate=1e-4: its row in the table, and its directory in that of the task
    config: ConfigDict
    overrides: list[str]  # those of the command line and of --search, which `config` has


def run(options, overrides) -> int:
    """Runs all trials and seeds one after the other, and prints their table; a finished run is not repeated.

    Several runs are in the workdir's subdirectories, and train in one process each.
    """
    # With --json - standard output has the results alone.
    output = sys.stderr if options.json == "-" else sys.stdout
    with contextlib.redirect_stdout(output):
        code, values = train(options, overrides)
    if code in (0, 1) and (len(values) > 1 or options.seeds or options.json):
        cli.show(options, values, table(values))
    return code


def train(options, overrides) -> tuple[int, dict]:
    """Trains all runs; returns the exit code, and {task and settings: {split and metric: [score of each seed]}}."""
    all_trials = trials(options.config, options.search, overrides)
    config = all_trials[0].config
    if options.search and examples.of(config):
        shared = ("init_from", "store", *examples.made_from(config))
        for search in options.search:
            if search.partition("=")[0] in shared:
                reason = "all runs of a task share a store, which it decides"
                raise BadInput(f"--search {search}: {reason}")
    runs = [*itertools.product(all_trials, range(options.seeds or 1))]
    resolve = partial(finetuning.resolve, several=len(runs) > 1)
    from bert_jax.train import pretrain

    code = 0
    values = {}
    for trial, seed in runs:
        task = join(str(options.workdir), trial.task)
        directory = join(task, trial.name, f"seed{seed}" if options.seeds else "")
        config = trial.config.copy_and_resolve_references()
        config.seed += seed
        config.store = config.store or f"{download.absolute(task)}.store"
        try:
            exit_code = pretrain(config, directory, resolve, trial.overrides)
        except FloatingPointError as error:  # others of a search may not diverge
            code = 1
            cli.print_error(f"{directory}: {error}")
            continue
        if exit_code:
            return exit_code, values
        scores = values.setdefault(join(trial.task, trial.name), {})
        for name, score in read_scores(config, directory).items():
            scores.setdefault(name, []).append(score)
    return code, values


def join(*parts: str) -> str:
    """Joins the parts of a path that are not empty."""
    return "/".join(filter(None, parts))


def trials(name: str, search: list[str], overrides: list[str]) -> list[Trial]:
    """Returns a trial for each task of a config (`configs/glue.py:cola,rte`, or `:all`) and each combination of the
    values of `--search`."""
    path, _, argument = name.partition(":")
    if remote.is_address(name):  # this colon is the one of its scheme
        argument = ""
    tasks = configs.arguments(path) if argument == "all" else split_list(argument)
    keys = {}
    for text in search:
        key, _, values = text.partition("=")
        keys[key] = split_list(values)
    if not all(keys.values()) or len(keys) < len(search):
        raise BadInput(f"--search {' '.join(search)}: expected KEY=VALUE,VALUE,..., each key once")
    result = []
    for task in tasks or [""]:
        config_name = f"{path}:{task}" if task else name
        directory = task if len(tasks) > 1 else ""
        for values in itertools.product(*keys.values()):
            pairs = [*zip(keys, values, strict=True)]
            name_of_trial = ",".join(f"{key.rpartition('.')[2]}={value}" for key, value in pairs)
            searched = [f"{key}={value}" for key, value in pairs]
            config = configs.load(config_name, [*overrides, *searched], cli.log)
            result.append(Trial(directory, name_of_trial, config, [*overrides, *searched]))
    return result


def read_scores(config: ConfigDict, directory: str) -> dict[str, float]:
    """Returns {split and metric: score} of a finished run, with evaluate.patience those of its best step."""
    with workdir.opened(directory) as run:
        summary = json_file.read(run.directory / "summary.json")
        lines = metrics_file.lines(run.directory / "metrics.jsonl")
        task = json_file.read(run.directory / "config.json")["task"]
    step = summary["best"].get("step", summary["steps"])
    values = {line["split"]: line for line in lines if line["step"] == step}
    scores = {}
    for split in examples.split_names(config)[1:]:
        line = values[split]
        # Also the baselines: the share of the most frequent label with the accuracy to compare, the loss of the mean.
        baselines = sorted({"accuracy", "majority", "loss_of_mean"} & line.keys())
        for name in (*task.get("metrics", ["loss"]), *baselines):
            scores[f"{split} {name}"] = line.get(name)
    return scores


def table(values: dict) -> str:
    """Returns a Markdown table: a row for each trial and metric.

    values: {trial: {metric: scores by seed}}.
    """
    lines = ["| | metric | mean | deviation | runs |", "| --- | --- | --- | --- | --- |"]
    for trial, scores_by_metric in values.items():
        for metric, scores in scores_by_metric.items():
            numbers = [math.nan if score is None else score for score in scores]  # null: not finite
            deviation = f"{np.std(numbers, ddof=1):.4f}" if len(numbers) > 1 else ""
            cells = f"{trial} | {metric} | {np.mean(numbers):.4f} | {deviation} | {len(numbers)}"
            lines.append(f"| {cells} |")
    return "\n".join(lines)
