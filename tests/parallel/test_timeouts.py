"""One of two real processes is killed or hangs: both end by the deadline with a reason, and the next start resumes
(faults elsewhere in the run: tests/faults)."""

import pytest
from kits import faulty_program, processes
from kits.runs import pretraining

from bert_jax import errors
from bert_jax.checkpoints import reader

pytestmark = pytest.mark.full

DEADLINES = {"compile": 60, "step": 6, "save": 10, "evaluate": 10}  # seconds
STEPS = 80  # every start does a few
FAULTS = ["1:step:4:kill", "0:step:4:stop"]


@pytest.fixture(scope="module")
def workdir(tmp_path_factory):
    """The workdir that every test resumes."""
    return tmp_path_factory.mktemp("world") / "run"


@pytest.mark.parametrize("fault", FAULTS)
def test_both_end_by_the_deadline(finished, workdir, tmp_path, fault):
    victim, before = int(fault[0]), reader.newest(workdir / "checkpoints")
    changes = {f"timeouts.{name}": seconds for name, seconds in DEADLINES.items()}
    changes |= {"phases.main.steps": STEPS, "log.every": 1, "checkpoint.every": 2}
    command = pretraining(finished[0], workdir, **changes, **{"evaluate.every": 0})
    fault = {faulty_program.FAULT: fault}
    ended = processes.run(command, tmp_path, 2, 1, **fault)
    codes = ended[victim].code, ended[1 - victim].code
    # By its own deadline, or earlier by JAX, because the other has ended. A stopped process does not notice that.
    assert codes[0] in {-9, -14, -6} and codes[1] in {-14, -6, errors.LOST}, ended
    printed = [ended[number].errors for number in (victim, 1 - victim)]
    assert faulty_program.STARTED in printed[0] and printed[1].strip(), "a process printed nothing"
    if codes[0] == -14:
        assert "in faulty" in printed[0], "no stack trace"
    if before:
        assert f"step {before}" in ended[0].output
