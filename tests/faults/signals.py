"""SIGTERM to one process or to both of two, and one of two killed, raising, stopped or stuck: all end in time, say why,
and a restart goes on to the same bits. What ends late is no answer: `World.wait` raises."""

import json
import re
import signal
import threading
from pathlib import Path

from kits import stuck

from bert_jax import errors
from bert_jax.parallel import processes as cluster
from faults import moments
from faults.world import ALONE, DEADLINES, EVALUATED, HALF, LATEST, STEPS, TOGETHER, Outcome, World

PLACES = ("step", "save", "evaluate", "compile", "restore")
# Of the calls at a place one is drawn: of batches, saves and evaluations, in the first half of a run.
CALLS = {
    "step": (3, HALF),
    "save": (1, 8),
    "evaluate": (0, 2),
    "compile": (0, 1),
    "restore": (0, 1),
}
SPARE = 8  # steps that are done after a signal, at most: two processes agree on one that neither has passed
SIGNALS = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP, "terminate": signal.SIGTERM}
STUCK = ("sleep", "hold")

KILLED, ALARMED, ABORTED = (
    -signal.SIGKILL,
    -signal.SIGALRM,
    -signal.SIGABRT,
)  # at a deadline; by JAX
LOST = {ALARMED, ABORTED, errors.LOST}
PAUSE = 40  # seconds until a process that was stopped goes on, and finds its deadline over
# {fault: (exit codes of the process that it happens to, of the other)}
CODES = {
    "kill": ({KILLED}, LOST),
    "raise": ({1}, {1, ABORTED, errors.LOST}),
    "stop": (LOST, LOST),
    "stuck": (LOST, LOST),
}
# A line of ours, or stacks; JAX, which ends who has lost process 0 by itself; an error by which such a loss shows.
REASON = r"^bert-jax: |most recent call first|Terminating process because|"
REASON += rf"^\S*JaxRuntimeError: (?:{'|'.join(cluster.GONE)})"


def terminate(world: World, directory: Path, draw, number: int) -> Outcome:
    """One process and two take turns, then the places; that of the first two tries is drawn."""
    run, kind = directory / "run", (ALONE, TOGETHER)[number % 2]
    place = PLACES[number // 2 % len(PLACES)] if number > 1 else str(draw.choice(PLACES))
    if place == "restore":
        world.half_done(run, kind)
    story, before, ended = send(world, run, draw, kind, place, "terminate", draw.random() < 0.5)
    wrong = stopped_wrongly(run, ended, before) or world.finish(run, kind)
    return Outcome(not wrong, kind, f"SIGTERM {story}; {wrong or 'bitwise'}")


def disturb(world: World, directory: Path, draw, number: int, fault: str) -> Outcome:
    """The place of the first try is drawn; then they take turns."""
    run, places = directory / "run", PLACES[:-1]
    place = places[number % len(places)] if number else str(draw.choice(places))
    story, _, ended = send(world, run, draw, TOGETHER, place, fault, False)
    wrong = ended_wrongly(ended, int(story[0]), fault) or world.finish(run, TOGETHER)
    return Outcome(not wrong, f"at {place}", f"{story}; {wrong or 'bitwise'}")


def send(world: World, run: Path, draw, kind: str, place: str, fault: str, to_all: bool):
    """(story, which begins with the number of a process, the step that was reported last, [Ended]) of a fault: a signal
    from outside at a step or in a save, or what a process does to itself."""
    which = int(draw.integers(2)) if kind == TOGETHER else 0
    from_outside = fault in SIGNALS and place in ("step", "save")
    number = int(draw.integers(*CALLS[place]))
    what = STUCK[number % len(STUCK)] if fault == "stuck" else fault
    inside = "" if from_outside else f"{which}:{place}:{number}:{what}"
    before = {"restore": HALF, "evaluate": EVALUATED[number % 2]}.get(place, 0)
    with world.started(run, kind, fault=inside, **DEADLINES) as running:
        if from_outside:
            when = moments.at_a_step if place == "step" else moments.in_a_save
            inside = f"{which}: {fault} {when(running, run, draw)}"
            before = moments.last_step(run / "metrics.jsonl")
            for process in running if to_all else [running[which]]:
                process.send_signal(SIGNALS[fault])
                if fault == "stop":
                    threading.Timer(PAUSE, process.send_signal, [signal.SIGCONT]).start()
        ended = world.wait(running, run, LATEST)
    assert from_outside or stuck.TOLD in ended[which].said, "it never came to the fault"
    return f"{inside}, codes {[process.code for process in ended]}", before, ended


def stopped_wrongly(run: Path, ended, before: int) -> str:
    """What is wrong with the end of a run that was told to stop after step `before`, or an empty text."""
    if any(process.code != 75 for process in ended):
        return f"not code 75: {ended}"
    if not run.exists():  # one that had not begun has nothing to save
        return f"no {run.name}: {ended}" if before else ""
    status = json.loads((run / "status.json").read_text())
    step = status["step"]
    if status["state"] != "preempted" or step != (status["last_checkpoint"] or 0):
        return f"status.json: {status}"
    reported = moments.last_step(run / "metrics.jsonl")
    is_right = step == reported and before <= step <= min(before + SPARE, STEPS)
    return "" if is_right else f"step {step} was saved, {before} and {reported} were reported"


def ended_wrongly(ended, which: int, fault: str) -> str:
    """What is wrong with the ends of both processes, or an empty text."""
    for number, process in enumerate(ended):
        is_hit = number == which
        if process.code not in CODES[fault][0 if is_hit else 1]:
            return f"process {number} ended with {process.code}: {process.said}"
        reason = stuck.RAISED if is_hit and fault == "raise" else REASON
        if not (is_hit and fault == "kill") and not re.search(reason, process.said, re.M):
            return f"process {number} gave no reason: {process.said}"
        if is_hit and fault in ("stop", "stuck") and "most recent call first" not in process.said:
            return f"process {number} shows no stack: {process.said}"
    return ""
