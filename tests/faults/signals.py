"""SIGTERM to one process, or to one or both of two: in time the current step is saved, with code 75; then the same bits
in the end."""

import json
import signal
import time
from pathlib import Path

from kits import stuck

from faults import limits, moments
from faults.world import ALONE, EVALUATED, HALF, STEPS, TOGETHER, Outcome, World, lines

NAMES = {ALONE: "of one process", TOGETHER: "of two"}
MOMENTS = ("step", "save", "evaluate", "compile", "restore")
SPARE = 8  # steps before the end: two processes agree on a step that none has passed yet
# From the last step that is reported to the last one that one process does: a report is a step late, and a signal that
# comes just after it was asked for is heeded after the next step.
AHEAD = 2


def terminate(world: World, directory: Path, draw, number: int) -> Outcome:
    """One process and two take turns, then the moments; that of the first two tries is drawn."""
    run, kind = directory / "run", (ALONE, TOGETHER)[number % 2]
    moment = MOMENTS[number // 2 % len(MOMENTS)] if number > 1 else str(draw.choice(MOMENTS))
    # What is going on when the signal comes, one more step, and to save.
    most = limits.to_save("save" if moment == "restore" else moment, "step", "save")
    send = from_outside if moment in ("step", "save") else from_inside
    story, begun, reported, ended = send(world, run, draw, kind, moment)
    seconds = time.time() - begun
    story = f"SIGTERM {story}; all gone after {seconds:.1f} s of {most:.0f}"
    wrong = f"too late: {ended}" if seconds > most else ""
    wrong = wrong or stopped_wrongly(run, ended, reported, kind, moment)
    wrong = wrong or world.finish(run, kind)
    return Outcome(not wrong, NAMES[kind], f"{story}; {wrong or 'bitwise'}", seconds)


def from_outside(world: World, run: Path, draw, kind: str, moment: str):
    """(story, time, steps that were reported just before and just after, [Ended]) of a signal to one or all."""
    with world.started(run, kind, **limits.keys()) as running:
        if moment == "step":
            story = moments.at_a_step(running, run, draw, 1, STEPS - SPARE)
        else:
            story = moments.in_a_save(running, run, draw, 5)
        told = [running[int(draw.integers(len(running)))]] if draw.random() < 0.5 else running
        before, begun = moments.last_step(run / "metrics.jsonl"), time.time()
        for process in told:
            process.send_signal(signal.SIGTERM)
        after = moments.last_step(run / "metrics.jsonl")
        ended = world.wait(running, run)
    return f"to {len(told)} of {len(running)} {story}", begun, (before, after), ended


def from_inside(world: World, run: Path, draw, kind: str, moment: str):
    """The same of a signal to one of them, which comes just before it compiles, restores or evaluates."""
    if moment == "restore":
        world.half_done(run, kind)
    which = int(draw.integers(len(NAMES))) if kind == TOGETHER else 0
    call = int(draw.integers(len(EVALUATED))) if moment == "evaluate" else 0
    fault = f"{which}:{moment}:{call}:terminate"
    with world.started(run, kind, fault=fault, **limits.keys()) as running:
        ended = world.wait(running, run)
    reported = {"evaluate": EVALUATED[call], "compile": 0, "restore": HALF}[moment]
    return fault, stuck.when(ended[which].said), (reported, reported), ended


def stopped_wrongly(run: Path, ended, reported: tuple[int, int], kind: str, moment: str) -> str:
    """What is wrong with the end of a run that was told to stop, or an empty text."""
    if any(process.code != 75 for process in ended):
        return f"not code 75: {ended}"
    before, after = reported
    if not run.exists():  # a process alone that had not begun has nothing to save
        return "" if kind == ALONE and not after else f"no {run.name}: {ended}"
    status = json.loads((run / "status.json").read_text())
    step = status["step"]
    # Where no step was done, there is nothing to save.
    if status["state"] != "preempted" or step != (status["last_checkpoint"] or 0):
        return f"status.json: {status}"
    if moments.last_step(run / "metrics.jsonl") != step:
        return f"step {step} was saved, but is not the last one that was reported"
    # A process alone gives an evaluation up at once.
    ahead = SPARE if kind == TOGETHER else AHEAD if moment in ("step", "save") else 0
    if not before <= step <= after + ahead:
        return f"stopped at step {step}, {before} to {after} were reported at the signal"
    is_evaluated = (step, "heldout") in [line["place"] for line in lines(run)]
    if kind == ALONE and moment == "evaluate" and is_evaluated:
        return f"step {step} was evaluated all the same"
    return ""
