"""The headline of a line."""

import pytest
from ml_collections import ConfigDict

from bert_jax.objectives import metrics


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (6.5, "loss 6.50, 0.50 nats under frequencies alone"),
        (6.95, "loss 6.95, 0.05 nats under frequencies alone; nothing but frequencies learnt yet"),
        (7.05, "loss 7.05, 0.05 nats over frequencies alone; nothing but frequencies learnt yet"),
        (7.25, "loss 7.25, 0.25 nats over frequencies alone; not even frequencies learnt yet"),
        (None, ""),
    ],
)
def test_the_headline_is_compared_with_frequencies_alone(value, expected):
    assert metrics.describe_headline({"loss": value}, "loss", 7.0) == expected
    assert metrics.describe_headline({"loss": value}, "", 7.0) == ""


def test_a_line_has_the_headline_metric_once():
    values = {"loss": 6.5, "mlm_loss": 6.25, "mlm_loss_masked": 6.5}
    values["headline"] = metrics.describe_headline(values, "mlm_loss_masked", 7.0)
    line = metrics.describe("heldout", values)
    assert line == f"{values['headline']}  loss 6.5  mlm_loss 6.25"


def lines_of(name: str, *values) -> list[dict]:
    """Returns lines of two evaluated splits, each after one of training."""
    found = []
    for number, value in enumerate(values, 1):
        found.append({"step": number, "split": "train", "loss": 0.0, name: 99.0})
        found.append({"step": number, "split": "dev", "loss": 1.0, name: value})
        found.append({"step": number, "split": "other", "loss": 0.5, name: 100.0 - number})
    return found


@pytest.mark.parametrize(
    "name, values, step, later",
    [
        ("f1", (0.1, 0.3, 0.2, 0.3), 2, 2),  # an equal one is no better
        ("f1", (None, 0.1), 2, 0),
        ("f1", (None, None), 1, 1),
        ("loss", (3.0, 1.0, 2.0), 2, 1),
    ],
)
def test_the_best_evaluation(name, values, step, later):
    """By the first split and metric; a value that is not finite is the worst."""
    config = ConfigDict(dict(task=dict(metrics=(name, "loss")), evaluate=dict(patience=2)))
    if name == "loss":
        config.task = ConfigDict()
    best = metrics.best(config, lines_of(name, *values))
    expected = {"step": step, "metric": name, "value": values[step - 1], "later": later}
    assert best == expected and metrics.is_over(config, best) == (later >= 2)
    assert metrics.best(config, lines_of(name, *values)[:1]) == {} == metrics.best(config, None)
    config.evaluate.patience = 0
    best = metrics.best(config, lines_of(name, *values))
    assert best == {} and not metrics.is_over(config, best)
