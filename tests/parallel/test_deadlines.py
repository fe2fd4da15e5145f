"""One of two real processes is killed or gets stuck: both end by the deadline, each with a reason, and the next start
goes on."""

import pytest
from kits import processes, stuck
from kits.runs import assert_same_bits, lines, params, pretraining

from bert_jax import errors
from bert_jax.checkpoints import reader

pytestmark = pytest.mark.slow

DEADLINES = {"compile": 60, "step": 6, "save": 10, "evaluate": 10}  # seconds
STEPS = 80  # every start does a few
EVERYDAY = ["1:step:4:kill", "0:step:4:stop"]
CAMPAIGN = """
    0:step:4:kill 1:step:4:stop 0:step:4:sleep 1:step:4:hold 1:compile:0:sleep 1:open:0:sleep
    0:open:0:stop 0:restore:0:stop 1:restore:0:hold 0:save:1:stop 1:save:1:hold
    1:evaluate:0:kill 0:evaluate:0:sleep
"""
FAULTS = EVERYDAY + [pytest.param(fault, marks=pytest.mark.full) for fault in CAMPAIGN.split()]


@pytest.fixture(scope="module")
def world(finished, tmp_path_factory):
    """(settings, the workdir that every test goes on with)."""
    changes = {"phases.main.steps": STEPS, "log.every": 1, "checkpoint.every": 2}
    return finished[0] | changes, tmp_path_factory.mktemp("world") / "run"


def run(settings, workdir, said, **variables):
    """Two processes, to their end."""
    command = pretraining(settings, workdir)
    return processes.run(command, said, 2, 1, program=stuck.__file__, **variables)


@pytest.mark.parametrize("fault", FAULTS)
def test_both_end_by_the_deadline(world, tmp_path, fault):
    settings, workdir = world
    process, place, _, what = fault.split(":")
    victim, before = int(process), reader.newest(workdir / "checkpoints")
    limits = DEADLINES | ({"compile": 25} if place in ("compile", "open") else {})
    changes = {f"deadlines.{name}": seconds for name, seconds in limits.items()}
    changes |= {"evaluate.every": 3 if place == "evaluate" else 0}
    ended = run(settings | changes, workdir, tmp_path, **{stuck.FAULT: fault})
    codes = ended[victim].code, ended[1 - victim].code
    # By its own deadline, or before that by JAX, because the other is gone. Who is stopped hears of nothing.
    assert codes[0] in {-9, -14, -6} and codes[1] in {-14, -6, errors.LOST}, ended
    said = [ended[number].errors for number in (victim, 1 - victim)]
    assert stuck.TOLD in said[0] and said[1].strip(), "a process says nothing"
    if codes[0] == -14:
        assert "in faulty" in said[0], "no stack of it"
    if before and place in ("step", "save", "evaluate"):
        assert f"step {before}" in ended[0].output


@pytest.mark.full
def test_what_is_left_ends_like_a_run_that_was_never_disturbed(world, tmp_path):
    settings, workdir = world
    undisturbed = tmp_path / "undisturbed"
    for place in (workdir, undisturbed):
        ended = run(settings | {"evaluate.every": 0}, place, tmp_path / f"said {place.name}")
        assert [process.code for process in ended] == [0, 0], ended
    train = [line["step"] for line in lines(workdir) if line["split"] == "train"]
    assert train == list(range(1, STEPS + 1))
    assert_same_bits(*map(params, (workdir, undisturbed)))
