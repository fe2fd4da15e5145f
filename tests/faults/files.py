"""Damaged checkpoints: a run goes on from the newest one that is what was saved, says why, and deletes none of those
that it passes over.

A run that is half done is damaged and started again. Whatever it restores has to be bitwise what was saved.
"""

import os
import re
import shutil
from pathlib import Path
from typing import NamedTuple

from faults.world import ALONE, EVERY, HALF, TOGETHER, Outcome, World, call

NEEDED = ("_CHECKPOINT_METADATA", "fingerprints")  # without these a checkpoint is none
ITEMS = ("params", "opt_state")


class Damage(NamedTuple):
    """What was done to the checkpoints, in words, and what has to come of it."""

    story: str
    # The steps of which one must be resumed from: the later one where the damage turns out to be harmless.
    good: tuple[int, ...]
    # The steps that must be named where they are passed over.
    bad: tuple[int, ...] = ()
    # Other names that must be kept.
    strays: tuple[str, ...] = ()


def flip(world: World, directory: Path, draw, number: int) -> Outcome:
    """One bit of the newest checkpoint: in any of its files and, in turn, in one that holds arrays."""
    run = world.half_done(directory / "run")
    place = run / "checkpoints" / str(HALF)
    path = pick(place, draw, arrays=bool(number % 2))
    content = bytearray(path.read_bytes())
    byte, bit = int(draw.integers(len(content))), int(draw.integers(8))
    content[byte] ^= 1 << bit
    path.write_bytes(content)
    story = f"bit {bit} of byte {byte} of {path.relative_to(place)}"
    return resume(world, run, perhaps(story, HALF))


def pick(place: Path, draw, arrays: bool) -> Path:
    """A file that is not empty. Where arrays are wanted, one that restoring reads: of most there are two copies."""
    paths = sorted(place.glob("*/d/*" if arrays else "**/*"))
    return choice([path for path in paths if path.is_file() and path.stat().st_size], draw)


def choice(options, draw):
    return options[int(draw.integers(len(options)))]


def damage(world: World, directory: Path, draw, number: int) -> Outcome:
    """The kinds of damage take turns; every third try has a second one, to the checkpoint before."""
    run = world.half_done(directory / "run")
    found = KINDS[number % len(KINDS)](world, run / "checkpoints", HALF, draw)
    if number % 3 == 2:
        second = remove_item(world, run / "checkpoints", HALF - EVERY, draw)
        good = [step for step in found.good if step == HALF]
        good += second.good if min(found.good) < HALF else ()
        story = f"{found.story}; {second.story}"
        found = Damage(story, tuple(good), found.bad + second.bad, found.strays)
    return resume(world, run, found)


def resume(world: World, run: Path, damage: Damage) -> Outcome:
    """Starts a damaged run again."""
    checkpoints = run / "checkpoints"
    kept = {name: tree(checkpoints / name) for name in [*map(str, damage.bad), *damage.strays]}
    ended = call(*world.pretrain(run))
    found = re.search(r"resumed from step (\d+)", ended.said)
    step = int(found[1]) if found else 0
    passed = [str(bad) for bad in damage.bad if bad > step]
    # What never was a checkpoint is renamed, which is said as well.
    unnamed = [
        bad for bad in passed if not re.search(rf"checkpoints/{bad}(: |\.broken)", ended.said)
    ]
    gone = [
        name for name in [*passed, *damage.strays] if not is_kept(checkpoints, name, kept[name])
    ]
    if ended.code or step not in damage.good or unnamed or gone:
        wrong = (
            f"code {ended.code}, from step {step}; not named {unnamed}, gone {gone}: {ended.said}"
        )
    else:
        wrong = world.difference(run, ALONE)
    kind = {HALF: "nothing lost", HALF - EVERY: "the step before"}.get(step, "two steps before")
    return Outcome(not wrong, kind, f"{damage.story}; {wrong or f'resumed from step {step}'}")


def is_kept(checkpoints: Path, name: str, content: dict) -> bool:
    """Whether a name is there with all that was in it, as it was or set aside."""
    paths = [checkpoints / name, *checkpoints.glob(f"{name}.broken-*")]
    return any(path.exists() and tree(path) == content for path in paths)


def tree(place: Path) -> dict[str, bytes]:
    """{path: content} of all files below a directory, or of a file."""
    files = (path for path in [place, *place.rglob("*")] if path.is_file())
    return {path.relative_to(place).as_posix(): path.read_bytes() for path in files}


# --- Kinds of damage: (world, checkpoints, step, generator) -> Damage -----------------------------


def perhaps(story: str, step: int) -> Damage:
    """Of what restoring may not read: harmless, or found."""
    return Damage(story, (step, step - EVERY), (step,))


def surely(story: str, step: int) -> Damage:
    return Damage(story, (step - EVERY,), (step,))


def truncate(world, checkpoints, step, draw):
    path = pick(checkpoints / str(step), draw, arrays=draw.random() < 0.5)
    size = int(draw.choice([0, draw.integers(path.stat().st_size)]))
    os.truncate(path, size)
    return perhaps(f"{path.relative_to(checkpoints)} cut to {size} bytes", step)


def delete(world, checkpoints, step, draw):
    path = pick(checkpoints / str(step), draw, arrays=draw.random() < 0.5)
    path.unlink()
    return perhaps(f"{path.relative_to(checkpoints)} deleted", step)


def remove_item(world, checkpoints, step, draw):
    """Arrays, or what says that this is a checkpoint."""
    path = checkpoints / str(step) / choice([*ITEMS, *NEEDED], draw)
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    return surely(f"{path.relative_to(checkpoints)} deleted", step)


def hollow(world, checkpoints, step, draw):
    """A directory with a step's name and nothing in it."""
    shutil.rmtree(checkpoints / str(step))
    (checkpoints / str(step)).mkdir()
    return surely(f"{step}/ without its content", step)


def stray(world, checkpoints, step, draw):
    """Directories and files that nobody saved; that of a save that was cut off may go."""
    later = step + EVERY * int(draw.integers(1, 9))
    names = [f"{later}", "999999999999", "notes", f"0{later}"]
    for name in [*names, f"{later}.orbax-checkpoint-tmp"]:
        (checkpoints / name).mkdir()
    (checkpoints / f"{later + 1}").write_text("a file")
    return Damage(f"strays: {', '.join(names)}", (step,), strays=(*names, f"{later + 1}"))


def foreign(world, checkpoints, step, draw):
    """A whole checkpoint of another run."""
    later = step + EVERY
    shutil.copytree(world.reference(TOGETHER) / f"checkpoints/{later}", checkpoints / f"{later}")
    return Damage(f"{later}/ of another run", (step,), (later,))


def mixed(world, checkpoints, step, draw):
    """One item of the step before."""
    item = choice(ITEMS, draw)
    shutil.rmtree(checkpoints / f"{step}/{item}")
    shutil.copytree(checkpoints / f"{step - EVERY}/{item}", checkpoints / f"{step}/{item}")
    return surely(f"{step}/{item} of step {step - EVERY}", step)


KINDS = (truncate, delete, remove_item, hollow, stray, foreign, mixed)
