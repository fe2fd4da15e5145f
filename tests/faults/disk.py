"""A full disk in the middle of a run: it ends, names the last good step, and goes on once there is room."""

import contextlib
import os
import re
import shutil
import subprocess
import time
from pathlib import Path

from faults import moments
from faults.world import ALONE, LIMIT, NotRun, Outcome, World, call

SIZE = 8_000_000  # bytes: room for more than a run needs
NEEDED = 300_000  # bytes, less than a checkpoint takes


def fill(world: World, directory: Path, draw, number: int) -> Outcome:
    """The checkpoints alone, where only a save can fail, or the whole workdir lies on a small disk, in turn. It is
    filled up soon after a step, and stays full."""
    run = directory / "run"
    with small_disk(directory / "disk") as disk:
        if number % 2:
            run.symlink_to(disk)
        else:
            shutil.move(world.half_done(run) / "checkpoints", disk)
            (run / "checkpoints").symlink_to(disk / "checkpoints")
        with world.started(run, ALONE) as running:
            story = moments.at_a_step(running, run, draw)
            keep_full(disk, int(draw.integers(NEEDED)), running)
            [ended] = world.wait(running, run)
        (disk / "ballast").unlink(missing_ok=True)
        ours = [line for line in ended.said.splitlines() if line.startswith("bert-jax: ")]
        good = re.findall(r"the last checkpoint is step (\d+)", ended.said)
        is_save = "a checkpoint was not saved" in ended.said
        wrong = ""
        if ended.code != 1 or "Traceback" in ended.said or len(ours) != 1 or not good:
            wrong = f"code {ended.code}, not one line that names a good step: {ended.said}"
        elif not is_save and not number % 2:
            wrong = f"not in a save: {ended.said}"
        again = call(*world.pretrain(run))
        if not wrong and (again.code or f"resumed from step {good[-1]}\n" not in again.said):
            wrong = f"step {good[-1]} was named; the restart: {again}"
        wrong = wrong or world.difference(run, ALONE)
    kind = "in a save" if is_save else "at a report"
    return Outcome(not wrong, kind, f"{story}; {wrong or f'{kind}, step {good[-1]} named'}")


@contextlib.contextmanager
def small_disk(place: Path):
    """A disk of SIZE bytes in memory, which only root can have, or who may become root without a password."""
    place.mkdir()
    sudo = ["sudo", "-n"] if os.geteuid() else []
    command = [*sudo, "mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(place)]
    try:
        subprocess.run(command, capture_output=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise NotRun(f"no small disk: {error}") from None
    try:
        yield place
    finally:
        subprocess.run([*sudo, "umount", "--lazy", str(place)], check=True)


def keep_full(disk: Path, left: int, running) -> None:
    """Leaves so many bytes at most until the run ends; it would get room where old checkpoints are deleted."""
    deadline = time.monotonic() + LIMIT
    while any(process.poll() is None for process in running) and time.monotonic() < deadline:
        more = shutil.disk_usage(disk).free - left
        if more > 0:
            with open(disk / "ballast", "ab") as file:
                with contextlib.suppress(OSError):  # the run takes some, too
                    os.posix_fallocate(file.fileno(), file.tell(), more)
        time.sleep(moments.PAUSE)
