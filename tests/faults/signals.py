"""SIGTERM to one process, or to one or both of two: saved, code 75, and the same bits in the end."""

import json
import signal
from pathlib import Path

from faults import moments
from faults.world import ALONE, STEPS, TOGETHER, Outcome, World

NAMES = {ALONE: "of one process", TOGETHER: "of two"}
SPARE = 8  # steps before the end: two processes agree on a step that none has passed yet


def terminate(world: World, directory: Path, draw, number: int) -> Outcome:
    """One process and two take turns."""
    run, kind = directory / "run", (ALONE, TOGETHER)[number % 2]
    with world.started(run, kind) as running:
        if draw.random() < 0.5:
            story = moments.at_a_step(running, run, draw, 1, STEPS - SPARE)
        else:
            story = moments.in_a_save(running, run, draw, 5)
        told = running
        if kind == TOGETHER and draw.random() < 0.5:
            told = [running[int(draw.integers(2))]]
        for process in told:
            process.send_signal(signal.SIGTERM)
        ended = world.wait(running, run)
    story = f"SIGTERM to {len(told)} of {len(running)} {story}"
    wrong = stopped_wrongly(run, ended) or world.finish(run, kind)
    return Outcome(not wrong, NAMES[kind], f"{story}; {wrong or 'bitwise'}")


def stopped_wrongly(run: Path, ended) -> str:
    """What is wrong with the end of a run that was told to stop, or an empty text."""
    if any(process.code != 75 for process in ended):
        return f"not code 75: {ended}"
    status = json.loads((run / "status.json").read_text())
    if status["state"] != "preempted" or status["step"] != status["last_checkpoint"]:
        return f"status.json: {status}"
    return "" if 0 < status["step"] < STEPS else f"stopped at step {status['step']}"
