"""Damaged checkpoints: a run goes on from the newest one that is what was saved, says why, and deletes none.

A run that is half done is damaged and started again. Whatever it restores has to be bitwise what was saved.
"""

import os
import shutil
from pathlib import Path

from faults.world import ALONE, EVERY, HALF, TOGETHER, Outcome, World, call, watched

METADATA = ("_CHECKPOINT_METADATA", "fingerprints", "params/_METADATA", "opt_state/_sharding")
ITEMS = ("params", "opt_state")


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
    return resume(world, run, story, least=HALF - EVERY)


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
    story, least = kind(world, run / "checkpoints", HALF, draw), HALF - EVERY
    if number % 3 == 2:
        second = TO_ONE[int(draw.integers(len(TO_ONE)))]
        story += f"; {second(world, run / 'checkpoints', HALF - EVERY, draw)}"
        least -= EVERY
    return resume(world, run, story, least)


def resume(world: World, run: Path, story: str, least: int) -> Outcome:
    """Starts a damaged run again. least: the newest step that has no damage."""
    before = contents(run / "checkpoints")
    with watched() as restored:
        ended = call(*world.pretrain(run))
    wrong = f"code {ended.code}: {ended.said}" if ended.code else ""
    step = restored[0][0] if restored else 0
    wrong = wrong or ("" if step >= least else f"resumed from step {step}: {ended.said}")
    wrong = wrong or world.state_difference(restored[0][1], ALONE, step)
    if not wrong and step < HALF and f"checkpoints/{HALF}" not in ended.said:
        wrong = f"nothing is said of step {HALF}: {ended.said}"
    wrong = wrong or world.difference(run, ALONE)
    # What was passed over stays, under whatever name. Old good checkpoints go as the config says.
    files = contents(run / "checkpoints").values()
    if (
        not wrong
        and step < HALF
        and any(
            content not in files for name, content in before.items() if name.startswith(f"{HALF}/")
        )
    ):
        wrong = f"step {HALF} is gone"
    kind = "harmless" if step == HALF else "the step before"
    kind = kind if step > HALF - 2 * EVERY else "two steps before"
    return Outcome(not wrong, kind, f"{story}; {wrong or f'resumed from step {step}, bitwise'}")


def contents(place: Path) -> dict[str, bytes]:
    files = (path for path in place.rglob("*") if path.is_file())
    return {path.relative_to(place).as_posix(): path.read_bytes() for path in files}


# --- Kinds of damage: (world, checkpoints, step, generator) -> what was done ----------------------


def truncate(world, checkpoints, step, draw):
    path = pick(checkpoints / str(step), draw, arrays=draw.random() < 0.5)
    size = int(draw.integers(path.stat().st_size))
    os.truncate(path, size)
    return f"{path.relative_to(checkpoints)} cut to {size} bytes"


def empty(world, checkpoints, step, draw):
    path = pick(checkpoints / str(step), draw, arrays=draw.random() < 0.5)
    os.truncate(path, 0)
    return f"{path.relative_to(checkpoints)} emptied"


def delete(world, checkpoints, step, draw):
    path = pick(checkpoints / str(step), draw, arrays=draw.random() < 0.5)
    path.unlink()
    return f"{path.relative_to(checkpoints)} deleted"


def delete_metadata(world, checkpoints, step, draw):
    path = checkpoints / str(step) / METADATA[int(draw.integers(len(METADATA)))]
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()
    return f"{path.relative_to(checkpoints)} deleted"


def delete_item(world, checkpoints, step, draw):
    path = checkpoints / str(step) / ITEMS[int(draw.integers(len(ITEMS)))]
    shutil.rmtree(path)
    return f"{path.relative_to(checkpoints)}/ deleted"


def hollow(world, checkpoints, step, draw):
    """A directory with a step's name and nothing in it."""
    shutil.rmtree(checkpoints / str(step))
    (checkpoints / str(step)).mkdir()
    return f"{step}/ without its content"


def stray(world, checkpoints, step, draw):
    """Directories and files that nobody saved."""
    later = step + EVERY * int(draw.integers(1, 9))
    names = [f"{later}", f"{later}.orbax-checkpoint-tmp", "999999999999", "notes", f"0{later}"]
    for name in draw.choice(names, 3, replace=False):
        (checkpoints / name).mkdir()
    (checkpoints / f"{later + 1}").write_text("a file")
    (checkpoints / f"{later + 2}").mkdir(exist_ok=True)
    (checkpoints / f"{later + 2}/README").write_text("a stranger's")
    return f"strays: {', '.join(sorted(path.name for path in checkpoints.iterdir()))}"


def foreign(world, checkpoints, step, draw):
    """A whole checkpoint of another run."""
    shutil.copytree(
        world.reference(TOGETHER) / f"checkpoints/{step + EVERY}", checkpoints / f"{step + EVERY}"
    )
    return f"{step + EVERY}/ of another run"


def renamed(world, checkpoints, step, draw):
    """A whole checkpoint of an earlier step under a later name."""
    shutil.copytree(checkpoints / str(step - EVERY), checkpoints / f"{step + EVERY}")
    return f"{step - EVERY}/ copied to {step + EVERY}/"


def mixed(world, checkpoints, step, draw):
    """One item of the step before."""
    item = ITEMS[int(draw.integers(len(ITEMS)))]
    shutil.rmtree(checkpoints / f"{step}/{item}")
    shutil.copytree(checkpoints / f"{step - EVERY}/{item}", checkpoints / f"{step}/{item}")
    return f"{step}/{item} of step {step - EVERY}"


TO_ONE = (truncate, delete, empty, delete_metadata, delete_item, hollow)
KINDS = (*TO_ONE, stray, foreign, renamed, mixed)
