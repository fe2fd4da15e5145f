"""The headline of a line."""

import pytest

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
