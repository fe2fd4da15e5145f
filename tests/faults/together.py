"""One of two processes killed, raising, stopped or stuck: all end in time, each says why, a restart goes on."""

import re
import signal
import time
from functools import partial
from pathlib import Path

import stuck as program

from bert_jax import errors
from bert_jax.parallel import processes as cluster
from faults import limits, moments
from faults.world import HALF, TOGETHER, Outcome, World

PLACES = ("step", "save", "evaluate", "compile")
# Of the calls at a place one is drawn: of batches, saves and evaluations, in the first half of a run.
CALLS = {"step": (3, HALF), "save": (1, 8), "evaluate": (0, 2), "compile": (0, 1)}
SIGNALS = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}
STUCK = ("sleep", "hold")

KILLED, ABORTED = -signal.SIGKILL, -signal.SIGABRT  # by its guardian; by JAX
LOST = {KILLED, ABORTED, errors.LOST}
# {fault: (exit codes of the process that it happens to, of the other)}
CODES = {
    "kill": ({KILLED}, LOST),
    "raise": ({1}, {1, ABORTED, errors.LOST}),
    "stop": (LOST, LOST),
    "stuck": (LOST, LOST),
}
# A line of ours; JAX, which ends who has lost process 0 by itself; an error by which such a loss shows.
REASON = r"^bert-jax: |Terminating process because|"
REASON += rf"^\S*JaxRuntimeError: (?:{'|'.join(cluster.GONE)})"


def disturb(world: World, directory: Path, draw, number: int, fault: str) -> Outcome:
    """The place of the first try is drawn; then they take turns."""
    run, which = directory / "run", int(draw.integers(2))
    place = PLACES[number % len(PLACES)] if number else str(draw.choice(PLACES))
    if fault in SIGNALS and place in ("step", "save"):
        story, begun, ended = from_outside(world, run, draw, which, place, SIGNALS[fault])
        most, stack = limits.to_end(*limits.AT_ANY), "most recent call first"
    else:
        what = STUCK[number % len(STUCK)] if fault == "stuck" else fault
        story = f"{which}:{place}:{draw.integers(*CALLS[place])}:{what}"
        begun, ended = from_inside(world, run, which, story)
        most, stack = limits.to_end(place), "in faulty"
    seconds = time.time() - begun
    story = f"{fault}, process {which}: {story}; all gone after {seconds:.1f} s of {most:.0f}"
    story += f" with {[process.code for process in ended]}"
    wrong = f"too late: {ended}" if seconds > most else ended_wrongly(ended, which, fault)
    if not wrong and fault in ("stop", "stuck") and stack not in ended[which].said:
        wrong = f"no stack of what is stuck: {ended[which].said}"
    wrong = wrong or world.finish(run, TOGETHER)
    return Outcome(not wrong, f"at {place}", f"{story}; {wrong or 'bitwise'}", seconds)


def from_outside(world: World, run: Path, draw, which: int, place: str, number: int):
    """(story, time, [Ended]) of a signal at a random moment."""
    with world.started(run, TOGETHER, **limits.keys()) as running:
        if place == "step":
            story = moments.at_a_step(running, run, draw, 1, HALF)
        else:
            story = moments.in_a_save(running, run, draw, HALF // 2)
        begun = time.time()
        running[which].send_signal(number)
        return story, begun, world.wait(running, run)


def from_inside(world: World, run: Path, which: int, fault: str):
    """(time, [Ended]) of what happens to a process at a call."""
    with world.started(run, TOGETHER, fault=fault, **limits.keys()) as running:
        ended = world.wait(running, run)
    return program.when(ended[which].said), ended


def ended_wrongly(ended, which: int, fault: str) -> str:
    """What is wrong with the ends of both processes, or an empty text."""
    for number, process in enumerate(ended):
        is_hit = number == which
        if process.code not in CODES[fault][0 if is_hit else 1]:
            return f"process {number} ended with {process.code}: {process.said}"
        if is_hit and fault == "kill":
            continue
        reason = program.RAISED if is_hit and fault == "raise" else REASON
        if not re.search(reason, process.said, re.M):
            return f"process {number} gave no reason: {process.said}"
    return ""


killed, raising = partial(disturb, fault="kill"), partial(disturb, fault="raise")
stopped, stuck = partial(disturb, fault="stop"), partial(disturb, fault="stuck")
