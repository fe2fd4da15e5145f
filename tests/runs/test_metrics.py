"""The headline of a line, and the best evaluation of a run."""

import re

import pytest
from ml_collections import ConfigDict

from bert_jax.runs import metrics


def test_the_headline_is_compared_with_frequencies_alone():
    values = 6.5, 6.95, 7.05, 7.25, None
    texts = [metrics.describe_headline({"loss": value}, "loss", 7.0) for value in values]
    gaps = [re.findall(r"\d\.\d+", text)[1:] for text in texts]
    assert gaps == [["0.50"], ["0.05"], ["0.05"], ["0.25"], []]
    assert ["under" in text for text in texts] == [True, True, False, False, False]
    assert metrics.describe_headline({"loss": 6.5}, "", 7.0) == ""


def test_a_line_has_the_headline_metric_once():
    values = {"loss": 6.5, "mlm_loss": 6.25, "mlm_loss_masked": 6.5}
    values["headline"] = metrics.describe_headline(values, "mlm_loss_masked", 7.0)
    assert metrics.describe("heldout", values) == f"{values['headline']}  loss 6.5  mlm_loss 6.25"


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
    found, steps = lines_of(name, *values), range(1, 5)
    best = metrics.best(config, found, steps)
    expected = {"step": step, "metric": name, "value": values[step - 1], "later": later}
    assert best == expected and metrics.is_over(config, best) == (later >= 2)
    assert metrics.best(config, found[:1], steps) == {} == metrics.best(config, None, steps)
    config.evaluate.patience = 0
    assert metrics.best(config, found, steps) == {}
    assert not metrics.is_over(config, best) and not metrics.is_over(config, {})


@pytest.mark.parametrize(
    "steps, best, later", [((1, 3), 3, 1), ((1, 2), 1, 3), ((4, 9), 4, 0), ((), None, None)]
)
def test_an_evaluation_without_a_checkpoint_is_not_the_best(steps, best, later):
    """But it counts among the later ones."""
    config = ConfigDict(dict(task=dict(metrics=("f1",)), evaluate=dict(patience=2)))
    found = metrics.best(config, lines_of("f1", 0.3, 0.2, 0.5, 0.4), steps)
    assert (found.get("step"), found.get("later")) == (best, later)
