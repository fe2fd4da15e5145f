"""Damaged checkpoints: a run goes on from the newest one that is what was saved, says why, and deletes none of those
that it passes over.

A run that is half done is damaged and started again. Whatever it restores has to be bitwise what was saved.
"""

import os
import re
import shutil
from pathlib import Path
from typing import NamedTuple

from faults.world import ALONE, EVERY, HALF, TOGETHER, Outcome, World, call, watched

METADATA = ("_CHECKPOINT_METADATA", "fingerprints", "params/_METADATA", "opt_state/_sharding")
NEEDED = METADATA[:2]  # without these a checkpoint is none
ITEMS = ("params", "opt_state")


class Damage(NamedTuple):
    """What was done to the checkpoints, in words, and what has to come of it."""

    story: str
    # The steps of which one must be resumed from: the later one where the damage turns out to be harmless.
    good: tuple[int, ...]
    # The steps that must be named and kept where they are passed over.
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
    return resume(world, run, Damage(story, (HALF, HALF - EVERY), (HALF,)))


def pick(place: Path, draw, arrays: bool) -> Path:
    """A file that is not empty. Where arrays are wanted, one that restoring reads: of most there are two copies."""
    pattern = "*/d/*" if arrays else "**/*"
    paths = [path for path in sorted(place.glob(pattern)) if path.is_file()]
    paths = [path for path in paths if path.stat().st_size]
    return paths[int(draw.integers(len(paths)))]


def damage(world: World, directory: Path, draw, number: int) -> Outcome:
    """The kinds of damage take turns; every third try has a second one, to the checkpoint before."""
    run = world.half_done(directory / "run")
    kind = KINDS[number % len(KINDS)]
    damage = kind(world, run / "checkpoints", HALF, draw)
    if number % 3 == 2:
        second = TO_ONE[int(draw.integers(len(TO_ONE)))]
        damage = both(damage, second(world, run / "checkpoints", HALF - EVERY, draw))
    return resume(world, run, damage)


def both(first: Damage, second: Damage) -> Damage:
    """Of two checkpoints; the second one, of an earlier step, matters where the first one cannot be used."""
    good = [step for step in first.good if step == HALF]
    good += second.good if min(first.good) < HALF else ()
    story, bad = f"{first.story}; {second.story}", first.bad + second.bad
    return Damage(story, tuple(good), bad, first.strays)


def resume(world: World, run: Path, damage: Damage) -> Outcome:
    """Starts a damaged run again."""
    checkpoints = run / "checkpoints"
    kept = {name: tree(checkpoints / name) for name in [*map(str, damage.bad), *damage.strays]}
    with watched() as restored:
        ended = call(*world.pretrain(run))
    step, state = restored[0] if restored else (0, {})
    passed = [bad for bad in damage.bad if bad > step]
    wrong = f"code {ended.code}: {ended.said}" if ended.code else ""
    if not wrong and step not in damage.good:
        wrong = f"resumed from step {step}, not from {damage.good}: {ended.said}"
    wrong = wrong or world.state_difference(state, ALONE, step)
    wrong = wrong or unnamed(passed, kept, ended.said)
    wrong = wrong or gone([*map(str, passed), *damage.strays], kept, checkpoints)
    wrong = wrong or world.difference(run, ALONE)
    kind = {HALF: "nothing lost", HALF - EVERY: "the step before"}.get(step, "two steps before")
    story = f"{damage.story}; {wrong or f'resumed from step {step}, bitwise'}"
    return Outcome(not wrong, kind, story)


def unnamed(steps: list[int], kept: dict, said: str) -> str:
    """Of which step that was passed over no reason is said, or an empty text."""
    for step in steps:
        # What never was a checkpoint, like an empty directory, is renamed, which is said as well.
        was_one = any(name.partition("/")[0] in (METADATA[0], *ITEMS) for name in kept[str(step)])
        reason = r": " if was_one else r"\.broken-\d+: renamed"
        if not re.search(rf"checkpoints/{step}{reason}", said):
            return f"nothing is said of step {step}: {said}"
    return ""


def gone(names: list[str], kept: dict, checkpoints: Path) -> str:
    """Which of these names is not there with all that was in it, as it was or set aside, or an empty text."""
    for name in names:
        paths = [checkpoints / name, *checkpoints.glob(f"{name}.broken-*")]
        if not any(path.exists() and tree(path) == kept[name] for path in paths):
            return f"{name} is gone"
    return ""


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
    size = int(draw.integers(path.stat().st_size))
    os.truncate(path, size)
    return perhaps(f"{path.relative_to(checkpoints)} cut to {size} bytes", step)


def empty(world, checkpoints, step, draw):
    path = pick(checkpoints / str(step), draw, arrays=draw.random() < 0.5)
    os.truncate(path, 0)
    return perhaps(f"{path.relative_to(checkpoints)} emptied", step)


def delete(world, checkpoints, step, draw):
    path = pick(checkpoints / str(step), draw, arrays=draw.random() < 0.5)
    path.unlink()
    return perhaps(f"{path.relative_to(checkpoints)} deleted", step)


def delete_metadata(world, checkpoints, step, draw):
    name = METADATA[int(draw.integers(len(METADATA)))]
    path = checkpoints / str(step) / name
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()
    done = surely if name in NEEDED else perhaps
    return done(f"{path.relative_to(checkpoints)} deleted", step)


def delete_item(world, checkpoints, step, draw):
    path = checkpoints / str(step) / ITEMS[int(draw.integers(len(ITEMS)))]
    shutil.rmtree(path)
    return surely(f"{path.relative_to(checkpoints)}/ deleted", step)


def hollow(world, checkpoints, step, draw):
    """A directory with a step's name and nothing in it."""
    shutil.rmtree(checkpoints / str(step))
    (checkpoints / str(step)).mkdir()
    return surely(f"{step}/ without its content", step)


def stray(world, checkpoints, step, draw):
    """Directories and files that nobody saved; one of a save that was cut off may go."""
    later = step + EVERY * int(draw.integers(1, 9))
    cut_off = f"{later}.orbax-checkpoint-tmp"
    names = [f"{later}", cut_off, "999999999999", "notes", f"0{later}"]
    names = [str(name) for name in draw.choice(names, 3, replace=False)]
    for name in names:
        (checkpoints / name).mkdir()
    (checkpoints / f"{later + 1}").write_text("a file")
    (checkpoints / f"{later + 2}").mkdir()
    (checkpoints / f"{later + 2}/README").write_text("a stranger's")
    story = f"strays: {', '.join(sorted(path.name for path in checkpoints.iterdir()))}"
    kept = {*names, f"{later + 1}", f"{later + 2}"} - {cut_off}
    return Damage(story, (step,), strays=tuple(sorted(kept)))


def foreign(world, checkpoints, step, draw):
    """A whole checkpoint of another run."""
    later = step + EVERY
    shutil.copytree(world.reference(TOGETHER) / f"checkpoints/{later}", checkpoints / f"{later}")
    return Damage(f"{later}/ of another run", (step,), (later,))


def renamed(world, checkpoints, step, draw):
    """A whole checkpoint of an earlier step under a later name."""
    later, earlier = step + EVERY, step - EVERY
    shutil.copytree(checkpoints / f"{earlier}", checkpoints / f"{later}")
    return Damage(f"{earlier}/ copied to {later}/", (step,), (later,))


def mixed(world, checkpoints, step, draw):
    """One item of the step before."""
    item = ITEMS[int(draw.integers(len(ITEMS)))]
    shutil.rmtree(checkpoints / f"{step}/{item}")
    shutil.copytree(checkpoints / f"{step - EVERY}/{item}", checkpoints / f"{step}/{item}")
    return surely(f"{step}/{item} of step {step - EVERY}", step)


TO_ONE = (truncate, delete, empty, delete_metadata, delete_item, hollow)
KINDS = (*TO_ONE, stray, foreign, renamed, mixed)
