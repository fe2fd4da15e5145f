"""Processes that are killed, terminated, stopped, raise or hang: all end in time, print why, and a restart ends with
the same bits. Waiting for a process that ends late raises."""

import re
import shutil
import signal
import time

import pytest
from kits import faulty_program
from kits.waiting import wait_until

from bert_jax import errors
from bert_jax.parallel import cluster
from bert_jax.runs import status
from faults.world import ALONE, EVERY, HALF, KINDS, LIMIT, STEPS, TOGETHER, last_step

pytestmark = [pytest.mark.full, pytest.mark.slow]

LIFE = 15.0  # about the seconds of a run: mostly imports and compilation
# {place: range of calls from which one is drawn}: steps, saves and evaluations in the first half of a run.
PLACES = {"step": (3, HALF), "save": (1, 8), "evaluate": (0, 2), "compile": (0, 1)}
DEADLINES = {"timeouts.compile": 60, "timeouts.step": 8, "timeouts.save": 10}
DEADLINES |= {"timeouts.evaluate": 15, "distributed.heartbeat": 10}
LATEST = 150.0  # seconds from the start until all have ended, if one hangs or was lost

KILLED, ALARMED, ABORTED = -signal.SIGKILL, -signal.SIGALRM, -signal.SIGABRT
LOST = {ALARMED, ABORTED, errors.LOST}  # by a deadline, by JAX, by us
# Exit codes of the faulty process, and of the other.
CODES = {"kill": ({KILLED}, LOST), "raise": ({1}, {1, ABORTED, errors.LOST})}
STACK = "most recent call first"
# Our own line or stacks; JAX's message when it aborts a process that lost process 0; or an error of a lost process.
REASON = rf"^bert-jax: |{STACK}|Terminating process because|"
REASON += rf"^\S*JaxRuntimeError: (?:{'|'.join(cluster.GONE)})"


def test_killed_at_any_time(world, run, draw):
    """Up to three times, some seconds after the start, or soon after a step that no earlier try has reached."""
    kills = int(draw.integers(1, 4))
    while kills:
        reached = min(last_step(run), STEPS - 1)
        step = int(draw.integers(reached, STEPS))
        with world.start(run) as [process]:
            if step > reached:
                wait_until(lambda: process.poll() is not None or last_step(run) >= step, LIMIT)  # noqa: B023
            time.sleep(draw.uniform(0, 0.1 if step > reached else LIFE))
            process.kill()
            [ended] = world.wait([process])
        if ended.code == 0:  # it finished before the kill: try again
            shutil.rmtree(run)
            continue
        assert ended.code == KILLED, ended
        kills -= 1
    world.finish(run)


def test_killed_inside_a_save(world, run, draw):
    """Each save renames its items and then itself: four calls in all."""
    call = int(draw.integers(4 * STEPS // EVERY))
    world.check_ended(world.run(run, ALONE, f"0:commit:{call}:kill"), KILLED)
    assert list(run.glob("checkpoints/*tmp*"))
    assert world.finish(run) == call // 4 * EVERY


def test_terminated(world, run, draw, turn):
    """SIGTERM to a single process, or to one or both of two: the current step is saved, and the exit code is 75."""
    kind, places = KINDS[turn % 2], [*PLACES, "restore"]
    place = places[turn // 2 % len(places)] if turn > 1 else str(draw.choice(places))
    if place == "restore":
        world.half_done(run, kind)
    which = "all" if draw.random() < 0.5 else draw.integers(len(KINDS) if kind == TOGETHER else 1)
    fault = f"{which}:{place}:{draw.integers(*PLACES.get(place, (0, 1)))}:terminate"
    world.check_ended(world.run(run, kind, fault), 75)
    if run.exists():  # before its first step, a run has nothing to save
        found = status.status(run)
        assert found["state"] == "preempted" and found["step"] == (found["last_checkpoint"] or 0)
        assert found["step"] == last_step(run) < STEPS or place == "restore"
    world.finish(run, kind)


@pytest.mark.parametrize("what", ["kill", "raise", "stop", "stuck"])
def test_one_of_two(world, run, draw, turn, what):
    """Both end in time and print a reason; one that was stopped or hangs prints its stack."""
    place = list(PLACES)[turn % len(PLACES)] if turn else str(draw.choice(list(PLACES)))
    which, call = int(draw.integers(2)), draw.integers(*PLACES[place])
    fault = ("sleep", "hold")[turn % 2] if what == "stuck" else what
    ended = world.run(run, TOGETHER, f"{which}:{place}:{call}:{fault}", seconds=LATEST, **DEADLINES)
    victim, other = ended[which], ended[1 - which]
    codes = CODES.get(what, (LOST, LOST))
    assert victim.code in codes[0] and other.code in codes[1], ended
    assert faulty_program.STARTED in victim.errors
    assert re.search(REASON, other.output + other.errors, re.M)
    reason = {"kill": "", "raise": faulty_program.ERROR}.get(what, STACK)
    assert reason in victim.output + victim.errors, victim
    world.finish(run, TOGETHER)
