"""The expected range of the loss."""

import pytest

from bert_jax.objectives import metrics

EXPECTED_LOSS = (10, 5.0, 6.0, 20, 3.0, 5.0)


@pytest.mark.parametrize(
    "step, expected",
    [(9, None), (10, (5.0, 6.0)), (15, (4.0, 5.5)), (20, (3.0, 5.0)), (21, None)],
)
def test_the_expected_range_is_interpolated_between_steps(step, expected):
    assert metrics.expected_range(EXPECTED_LOSS, step) == expected
    assert metrics.expected_range((), step) is None
