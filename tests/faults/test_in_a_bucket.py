"""A workdir in a bucket, with one process and two in turn: killed or terminated while it writes checkpoints or metrics,
a run resumes and ends with the bits of a run on disk."""

import signal

import pytest
from kits.bucket import Bucket

from bert_jax.runs import status
from faults.test_ended import KILLED, LOST
from faults.world import KINDS, STEPS, TOGETHER, last_step

pytestmark = [pytest.mark.full, pytest.mark.slow]

PREFIX = "runs/one"
# Of two processes the other must notice the kill; neither may end because the machine is busy.
TIMEOUTS = {"distributed.heartbeat": 10, "timeouts.step": 60, "timeouts.save": 60}
WRITES = 60  # one of these is drawn; a report is one write, a save about ten


def send_at(gcs, call: int, victim, number) -> None:
    """Sends a signal to a process at the `call`-th write of checkpoints or metrics."""
    calls = []

    def fault(method, name):
        if method == "POST" and ("/checkpoints/" in name or name.endswith("metrics.jsonl")):
            calls.append(name)
            if len(calls) == call:
                victim.send_signal(number)
                if number == signal.SIGKILL:
                    victim.wait()
        return 0

    gcs.fault = fault


def fetch(gcs, run) -> None:
    for name in gcs.names(PREFIX):
        path = run / name.removeprefix(f"{PREFIX}/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gcs.objects[name].data)


@pytest.mark.parametrize("name", ["SIGKILL", "SIGTERM"])
def test_a_run_in_a_bucket(world, tmp_path, draw, turn, name):
    gcs, kind, temporary = Bucket(), KINDS[turn % 2], tmp_path / "tmp"
    temporary.mkdir()
    variables = gcs.environment() | {"TMPDIR": str(temporary)}
    start = (f"gs://bucket/{PREFIX}", kind, "", variables)
    with world.start(*start, **TIMEOUTS) as running:
        victim = running[draw.integers(len(running))]
        send_at(gcs, int(draw.integers(1, WRITES)), victim, getattr(signal, name))
        ended = world.wait(running)
    codes = {process.code for process in ended}
    gcs.fault = lambda method, name: 0
    if name == "SIGTERM":
        assert codes == {75}, ended
        fetch(gcs, tmp_path / "stopped")
        found = status.status(tmp_path / "stopped")
        assert found["state"] == "preempted" and found["step"] == found["last_checkpoint"]
        assert found["step"] == last_step(tmp_path / "stopped") < STEPS
    else:
        assert KILLED in codes and codes <= {KILLED} | (LOST if kind == TOGETHER else set()), ended
    world.check_ended(world.run(*start))
    assert not any(".lock" in name for name in gcs.names())
    fetch(gcs, tmp_path / "run")
    world.check_same(tmp_path / "run", kind)
