"""SIGKILL at random times, inside saves too, once to three times; then the run goes on to the same bits."""

import contextlib
import shutil
import signal
from pathlib import Path

from faults import moments
from faults.world import ALONE, Outcome, World

# Every so many tries compile everything, and are killed with a cache that is being written.
COLD = 5
KINDS = {
    "in a save": moments.in_a_save,
    "at a step": moments.at_a_step,
    "at any time": moments.at_any_time,
}
INSIDE = "killed inside a save"  # how the story of such a kill begins
MOST = 8  # kills until one of them is as it has to be


def kill(world: World, directory: Path, draw, number: int) -> Outcome:
    """The kind of the first kill goes round; those after it are drawn."""
    run, kind = directory / "run", list(KINDS)[number % len(KINDS)]
    cache = directory / "cold" if number % COLD == COLD - 1 else None
    wanted, story = INSIDE if kind == "in a save" else "killed", []
    while len(story) < MOST and not any(text.startswith(wanted) for text in story):
        shutil.rmtree(run, ignore_errors=True)
        story.append(kill_once(world, run, draw, kind, cache))
    is_hit = any(text.startswith(wanted) for text in story)
    for other in draw.choice(list(KINDS), draw.integers(0, 3)):
        story.append(kill_once(world, run, draw, str(other), cache))
    # Where the cache was cold, the restart reads what the killed processes have left of it.
    wrong = world.finish(run, ALONE, cache) if is_hit else f"not {wanted}"
    kind = "inside a save" if wanted == INSIDE else "elsewhere"
    return Outcome(not wrong, kind, f"{'; '.join(story)}; {wrong or 'bitwise'}")


def kill_once(world: World, run: Path, draw, kind: str, cache) -> str:
    """Starts the run and kills it; what happened. It was inside a save where something is left that is not whole."""
    before, when = moments.begun(run), ""
    with world.started(run, ALONE, cache=cache) as [process]:
        with contextlib.suppress(moments.Missed):
            when = KINDS[kind]([process], run, draw)
        process.kill()
        [ended] = world.wait([process], run)
    if ended.code == 0:
        return "not killed, it had ended"
    assert ended.code == -signal.SIGKILL and when, f"it ended with {ended.code}: {ended.said}"
    is_save = moments.begun(run) != before and moments.unfinished(run)
    return f"{INSIDE if is_save else 'killed'} {when}"
