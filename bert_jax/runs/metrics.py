"""Metrics as pairs (sum, weight), and what the log says about their means."""

import math
import operator
from collections.abc import Iterable

import jax

from bert_jax.parallel.chips import gib


def add(a: dict, b: dict) -> dict:
    """Adds two dicts of (sum, weight)."""
    return jax.tree.map(operator.add, a, b)


def means(metrics: dict) -> dict[str, float]:
    """Converts {name: (sum, weight)}, on devices or the host, to {name: mean}; NaN if the weight is 0.

    The mean of X_nll, in nats, also has its X_perplexity.
    """
    metrics = jax.device_get(metrics)
    values = {}
    for name, (total, weight) in metrics.items():
        values[name] = float(total) / float(weight) if weight else math.nan
        if name.endswith("_nll"):
            perplexity = name.removesuffix("nll") + "perplexity"
            values[perplexity] = math.exp(min(values[name], 700))
    return values


def describe(split: str, values: dict) -> str:
    """Formats a line of metrics for the log; metrics.jsonl has all values."""
    headline = values.get("headline", "")
    headline_metric = headline.partition(" ")[0]
    parts = [headline] if headline else []
    for name, value in values.items():
        if name != headline_metric and is_shown(split, name, value):
            parts.append(f"{name} {value:.4g}")
    if split == "train":
        parts.append(describe_speed(values))
    return "  ".join(parts)


def describe_headline(values: dict, metric: str, entropy: float) -> str:
    """Compares a headline metric with the unigram entropy, in nats; '' if it has no value.

    metric: see objectives/base.py; '' for an objective without one.
    """
    value = plain(values.get(metric))
    if value is None:
        return ""
    gain = entropy - value
    where = "under" if gain >= 0 else "over"
    return f"{metric} {value:.2f}, {abs(gain):.2f} nats {where} frequencies alone"


def is_shown(split: str, key: str, value) -> bool:
    """Returns whether a number is in the line of the log."""
    if key in ("skipped", "spikes"):
        return value > 0
    if value is None or isinstance(value, str):
        return False
    if split != "train" and key != "seconds":
        return True
    return key == "loss" or key.endswith(("_loss", "_loss_masked", "_accuracy"))


def ranking(config, lines: list[dict] | None, steps: Iterable[int]) -> list[dict]:
    """Returns step, metric and value of the evaluations of the first evaluated split, and how many are later; the best
    first, equal ones in the order of their steps.

    They are judged by the first of `task.metrics`, or else by the loss, which is better if lower.

    lines: of metrics.jsonl.
    steps: those with a checkpoint; other evaluations are left out.
    """
    metric = [*config.task.get("metrics", ()), "loss"][0]
    evaluations = [line for line in lines or [] if line["split"] != "train"]
    evaluations = [line for line in evaluations if line["split"] == evaluations[0]["split"]]

    def rank(line: dict) -> float:
        value = line.get(metric)
        if value is None:  # not finite
            return -math.inf
        return -value if metric == "loss" else value

    saved = [line for line in evaluations if line["step"] in steps]
    return [
        {
            "step": line["step"],
            "metric": metric,
            "value": line.get(metric),
            "later": sum(other["step"] > line["step"] for other in evaluations),
        }
        for line in sorted(saved, key=rank, reverse=True)
    ]


def best(config, lines: list[dict] | None, steps: Iterable[int]) -> dict:
    """Returns the first of `ranking`; {} if there is none, and without `evaluate.patience`."""
    ranked = ranking(config, lines, steps)
    return ranked[0] if ranked and config.evaluate.patience else {}


def is_over(config, best: dict) -> bool:
    """Returns whether the last `evaluate.patience` evaluations were not better than the best one."""
    return 0 < config.evaluate.patience <= best.get("later", 0)


def plain(value):
    """Converts a number to JSON: values that are not finite become null. A text stays as it is."""
    if isinstance(value, str):
        return value
    is_finite = value is not None and math.isfinite(value)
    return value if is_finite else None


def describe_speed(values: dict) -> str:
    """Formats the speed and memory of a line of metrics, without those that are null."""
    parts = [f"{values['tokens_per_second']:.4g} real tokens/s"]
    if values["real_token_share"] is not None:  # null if no step was applied
        parts.append(f"real_token_share {values['real_token_share']:.3f}")
    steps = values["seconds"] / values["step_seconds"]
    waited = values["input_seconds"] / steps
    parts.append(f"step {values['step_seconds']:.3g} s, {waited:.2g} s of it waiting for input")
    if values["model_flops_utilization"] is not None:
        parts.append(f"utilization {values['model_flops_utilization']:.3f}")
    if values["peak_bytes"] is not None:
        parts.append(f"peak {gib(values['peak_bytes'])} GiB")
    return "  ".join(parts)
