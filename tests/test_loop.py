"""The actions of the loop after a step, decided without running a step."""

import pytest
from kits.small import small_config

from bert_jax.loop import due

EVERY = ("log.every=2", "checkpoint.every=6", "evaluate.every=4", "checkpoint.compare=3")


@pytest.mark.parametrize(
    "step, is_stopped, actions",
    [
        (1, False, ""),
        (2, False, "report"),
        (3, False, "compare"),
        (4, False, "report evaluate"),
        # The next start does the evaluation that a signal prevented.
        (4, True, "report save must_save"),
        (5, True, "report save must_save"),
        (6, False, "report save"),
        (10, False, "report save must_save"),  # the last step of a phase
        (12, False, "report save evaluate"),
        # The last evaluation belongs to the run, not to the step.
        (20, False, "report save must_save"),
    ],
)
def test_actions_after_a_step(step, is_stopped, actions):
    result = due(step, small_config(*EVERY), 10 if step <= 10 else 20, 20, is_stopped)
    assert {name for name in result._fields if getattr(result, name)} == set(actions.split())
