"""A full disk in the middle of a run: it ends, names the last good step, and goes on once there is room."""

import contextlib
import os
import re
import shutil
import subprocess
from pathlib import Path

from faults import moments
from faults.world import ALONE, STEPS, NotRun, Outcome, World, call, watched

SIZE = 8_000_000  # bytes: room for more than a run needs
NEEDED = 300_000  # bytes, less than a checkpoint takes


def fill(world: World, directory: Path, draw, number: int) -> Outcome:
    """The workdir, or its checkpoints alone, lie on a small disk, in turn. It is filled up soon after a step."""
    run = directory / "run"
    with small_disk(directory / "disk") as disk:
        if number % 2:
            run.mkdir()
            (disk / "checkpoints").mkdir()
            (run / "checkpoints").symlink_to(disk / "checkpoints")
        else:
            run.symlink_to(disk)
        with world.started(run, ALONE) as running:
            story = moments.at_a_step(running, run, draw, 4, STEPS // 2)
            left = int(draw.integers(NEEDED))
            fill_up(disk, left)
            [ended] = world.wait(running, run)
        story += f", {left} bytes left"
        (disk / "ballast").unlink()
        wrong, good = "", last_word(ended.said)
        if ended.code in (0, 2) or good is None:
            wrong = f"code {ended.code}, no last good step: {ended.said}"
        with watched() as restored:
            again = call(*world.pretrain(run))
        if not wrong and (again.code or restored[0][0] != good):
            wrong = f"step {good} was named; the restart: {again}"
        wrong = wrong or world.difference(run, ALONE)
    return Outcome(not wrong, "named and resumed", f"{story}; {wrong or f'step {good} named'}")


def last_word(said: str) -> int | None:
    """The last good step as a failed run names it."""
    found = re.findall(r"last (?:good one|checkpoint) is (?:step )?(\d+)", said)
    return int(found[-1]) if found else None


@contextlib.contextmanager
def small_disk(place: Path):
    """A disk of SIZE bytes in memory, which only root can have."""
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(place)]
    mounted = subprocess.run(command, capture_output=True, text=True)
    if mounted.returncode:
        raise NotRun(f"no small disk: {mounted.stderr.strip()}")
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


def fill_up(disk: Path, left: int) -> None:
    """Leaves so many bytes."""
    free = shutil.disk_usage(disk).free - left
    with open(disk / "ballast", "wb") as file:
        with contextlib.suppress(OSError):  # the run takes some, too
            os.posix_fallocate(file.fileno(), 0, max(1, free))
