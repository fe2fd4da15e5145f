"""SIGKILL at random times, inside saves too, once to three times; then the run goes on to the same bits."""

import shutil
from pathlib import Path

from faults import moments
from faults.world import ALONE, EVERY, STEPS, Outcome, World

COLD = (
    5  # every so many tries compile everything, and are killed with a cache that is being written
)
KINDS = ("in a save", "at a step", "at any time")


def kill(world: World, directory: Path, draw, number: int) -> Outcome:
    """The kind of the first kill goes round; those after it are drawn."""
    run, cold = directory / "run", number % COLD == COLD - 1
    cache = directory / "cold" if cold else None
    kinds = [KINDS[number % len(KINDS)], *draw.choice(KINDS, draw.integers(0, 3))]
    story = []
    for kind in kinds:
        with world.started(run, ALONE, cache=cache) as [process]:
            try:
                story.append(f"killed {wait(world, process, run, draw, kind)}")
            except moments.Missed as error:
                story.append(f"not killed ({error})")
            process.kill()
    if not any(text.startswith("killed") for text in story):
        return Outcome(False, "not killed", "; ".join(story))
    if cold:
        # The restart reads what the killed processes have left of their cache.
        [ended] = world.run(run, ALONE, cache)
        wrong = ended.said if ended.code else world.difference(run, ALONE)
    else:
        wrong = world.finish(run)
    shutil.rmtree(run.with_name("cache"), ignore_errors=True)
    return Outcome(not wrong, f"first {kinds[0]}", f"{'; '.join(story)}; {wrong or 'bitwise'}")


def wait(world: World, process, run: Path, draw, kind: str) -> str:
    if kind == "in a save":
        left = (STEPS - moments.last_step(run / "metrics.jsonl")) // EVERY
        return moments.in_a_save([process], run, draw, max(1, left - 1))
    if kind == "at a step":
        first = moments.last_step(run / "metrics.jsonl") + 1
        return moments.at_a_step([process], run, draw, min(first, STEPS - 3), STEPS - 2)
    return moments.at_any_time([process], run, draw, world.seconds(ALONE))
