"""Metrics as pairs (sum, weight), and what the log says about their means."""

import math
from collections.abc import Iterable

import jax
import numpy as np


def add(a: dict, b: dict) -> dict:
    """Adds two dicts of (sum, weight)."""
    return jax.tree.map(lambda x, y: x + y, a, b)


def means(metrics: dict) -> dict[str, float]:
    """Converts {name: (sum, weight)}, on devices or the host, to {name: mean}; NaN if the weight is 0."""
    metrics = jax.device_get(metrics)
    return {
        name: float(total) / float(weight) if weight else math.nan
        for name, (total, weight) in metrics.items()
    }


def describe(split: str, values: dict) -> str:
    """Formats a line of metrics for the log; metrics.jsonl has all values."""
    headline = values.get("headline", "")
    shown = (f"{key} {x:.4g}" for key, x in values.items() if is_shown(split, key, x))
    parts = [headline, *(text for text in shown if text.split()[0] != headline.partition(" ")[0])]
    if split == "train":
        parts.append(describe_speed(values))
    return "  ".join(filter(None, parts))


LEARNT = 0.1  # nats under the unigram entropy from which a model has learnt more than frequencies


def describe_headline(values: dict, metric: str, entropy: float) -> str:
    """Compares a headline metric with the unigram entropy, in nats; '' if it has no value.

    metric: see objectives/base.py; '' for an objective without one.
    """
    value = values.get(metric)
    if value is None or not math.isfinite(value):
        return ""
    gain = entropy - value
    where = "under" if gain >= 0 else "over"
    text = f"{metric} {value:.2f}, {abs(gain):.2f} nats {where} frequencies alone"
    learnt = "not even frequencies" if gain < -LEARNT else "nothing but frequencies"
    return text + f"; {learnt} learnt yet" * (gain < LEARNT)


def is_shown(split: str, key: str, value) -> bool:
    """Returns whether a number is in the line of the log."""
    if key in ("skipped", "spikes"):
        return value > 0
    is_main = key == "loss" or key.endswith(("_loss", "_loss_masked", "_accuracy"))
    is_score = split != "train" and key not in ("seconds", "headline")
    return value is not None and (is_main or is_score)


def best(config, lines: list[dict] | None, steps: Iterable[int]) -> dict:
    """Returns the step, metric and value of the best evaluation on the first evaluated split, the first one of equals,
    and how many are later; {} before there is any, and without `evaluate.patience`.

    It is judged by the first of `task.metrics`, or else by the loss, which is better if lower. lines: of metrics.jsonl.
    steps: those with a checkpoint; other evaluations cannot be the best.
    """
    lines = [line for line in lines or [] if line["split"] != "train"]
    lines = [line for line in lines if line["split"] == lines[0]["split"]]
    saved = [line for line in lines if line["step"] in steps]
    if not (saved and config.evaluate.patience):
        return {}
    name = [*config.task.get("metrics", ()), "loss"][0]
    values = [line.get(name) for line in saved]  # None if it is not finite
    ranks = [-math.inf if x is None else -x if name == "loss" else x for x in values]
    first = ranks.index(max(ranks))
    step = saved[first]["step"]
    found = {"step": step, "metric": name, "value": values[first]}
    return found | {"later": sum(line["step"] > step for line in lines)}


def is_over(config, best: dict) -> bool:
    """Returns whether the last `evaluate.patience` evaluations were not better than the best one."""
    return 0 < config.evaluate.patience <= best.get("later", 0)


def first_losses(lines: list[dict] | None) -> list[float]:
    """Returns the loss of the first report of training twice, as `step_guard.check_level` takes it; [] before there is
    one. lines: of metrics.jsonl."""
    losses = [line.get("loss") for line in lines or [] if line["split"] == "train"]
    return [loss for loss in losses if loss is not None][:1] * 2


def plain(value):
    """Converts a number to JSON: values that are not finite become null."""
    return None if value is None or not math.isfinite(value) else value


def describe_speed(values: dict) -> str:
    """Formats the speed and memory of a line of metrics, without those that are null."""
    share = values["real_token_share"]  # null if no step was applied
    parts = [f"{values['tokens_per_second']:.4g} real tokens/s"]
    parts += [] if share is None else [f"real_token_share {share:.3f}"]
    steps = values["seconds"] / values["step_seconds"]
    waited = values["input_seconds"] / steps
    parts.append(f"step {values['step_seconds']:.3g} s, {waited:.2g} s of it waiting for input")
    if values["model_flops_utilization"] is not None:
        parts.append(f"utilization {values['model_flops_utilization']:.3f}")
    if values["peak_bytes"] is not None:
        parts.append(f"peak {values['peak_bytes'] / 2**30:.2f} GiB")
    return "  ".join(parts)


def table(values: dict) -> str:
    """Returns a Markdown table: a row for each trial and metric. values: {trial: {metric: scores by seed}}."""
    lines = ["| | metric | mean | deviation | runs |", "| --- | --- | --- | --- | --- |"]
    for trial, scored in values.items():
        for name, scores in scored.items():
            known = [math.nan if score is None else score for score in scores]  # null: not finite
            spread = f"{np.std(known, ddof=1):.4f}" if len(known) > 1 else ""
            row = trial, name, f"{np.mean(known):.4f}", spread, len(known)
            lines.append(f"| {' | '.join(map(str, row))} |")
    return "\n".join(lines)
