"""What the loop does after a step, decided without running one."""

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
        (4, True, "report save"),  # the next start evaluates what a signal has left out
        (5, True, "report save"),
        (6, False, "report save"),
        (10, False, "report save"),  # the last step of a phase
        (12, False, "report save evaluate"),
        (20, False, "report save"),  # the last evaluation is the run's, not the step's
    ],
)
def test_what_is_due_after_a_step(step, is_stopped, actions):
    found = due(step, small_config(*EVERY), 10 if step <= 10 else 20, 20, is_stopped)
    assert {name for name in found._fields if getattr(found, name)} == set(actions.split())
