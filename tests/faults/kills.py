"""SIGKILL at random times, inside saves too, once to three times; then the run goes on to the same bits."""

import contextlib
import shutil
import signal
from pathlib import Path

from faults import moments
from faults.world import ALONE, EVERY, STEPS, Outcome, World

# Every so many tries compile everything, and are killed with a cache that is being written.
COLD = 5
KINDS = ("in a save", "at a step", "at any time")
INSIDE = "killed inside a save"  # how the story of such a kill begins
MOST = 8  # kills until one of them has to be inside a save
WINDOW = 0.06  # seconds, about as long as a save takes


def kill(world: World, directory: Path, draw, number: int) -> Outcome:
    """The kind of the first kill goes round; those after it are drawn."""
    run, kind = directory / "run", KINDS[number % len(KINDS)]
    cache = directory / "cold" if number % COLD == COLD - 1 else None
    story = [kill_once(world, run, draw, kind, cache)]
    while is_missed(story) and len(story) < MOST:
        shutil.rmtree(run)  # it had ended before: from the start again
        story.append(kill_once(world, run, draw, kind, cache))
    while kind == "in a save" and not is_inside(story) and len(story) < MOST:
        # Nearer and nearer to its beginning.
        window = WINDOW / (1 + len(story))
        story.append(kill_once(world, run, draw, kind, cache, window))
    others = draw.choice(KINDS, draw.integers(0, 3))
    story += [kill_once(world, run, draw, str(other), cache) for other in others]
    if is_missed(story):
        wrong = "not killed"
    elif kind == "in a save" and not is_inside(story):
        wrong = "no kill was inside a save"
    else:
        # Where the cache was cold, the restart reads what the killed processes have left of it.
        wrong = world.finish(run, ALONE, cache)
    shutil.rmtree(run.with_name("cache"), ignore_errors=True)
    kind = "inside a save" if is_inside(story) else "elsewhere"
    return Outcome(not wrong, kind, f"{'; '.join(story)}; {wrong or 'bitwise'}")


def is_missed(story: list[str]) -> bool:
    return not any(text.startswith("killed") for text in story)


def is_inside(story: list[str]) -> bool:
    return any(text.startswith(INSIDE) for text in story)


def kill_once(world: World, run: Path, draw, kind: str, cache, window: float = WINDOW) -> str:
    """Starts the run and kills it; what happened. It was inside a save where something is left that is not whole."""
    before, when = moments.begun(run), ""
    with world.started(run, ALONE, cache=cache) as [process]:
        with contextlib.suppress(moments.Missed):
            when = wait(world, process, run, draw, kind, window)
        process.kill()
        [ended] = world.wait([process], run)
    if ended.code == 0:
        return "not killed, it had ended"
    if ended.code != -signal.SIGKILL or not when:
        raise AssertionError(f"it ended with {ended.code} by itself, or hung: {ended.said}")
    is_save = moments.begun(run) != before and moments.unfinished(run)
    return f"{INSIDE if is_save else 'killed'} {when}"


def wait(world: World, process, run: Path, draw, kind: str, window: float) -> str:
    first = moments.last_step(run / "metrics.jsonl") + 1
    if kind == "in a save":
        left = (STEPS - first + 1) // EVERY
        # The first kill is at any save of those before the last few, so that there is one for a second.
        most = left // 2 if window == WINDOW else min(left, 2)
        return moments.in_a_save([process], run, draw, max(1, most), window)
    if kind == "at a step":
        return moments.at_a_step([process], run, draw, min(first, STEPS - 3), STEPS - 2)
    return moments.at_any_time([process], run, draw, world.seconds(ALONE))
