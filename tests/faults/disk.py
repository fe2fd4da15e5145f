"""A full disk in the middle of a run: it ends, names the last good step, and goes on once there is room."""

import contextlib
import os
import re
import shutil
import subprocess
import time
from pathlib import Path

from faults import moments
from faults.world import ALONE, LIMIT, STEPS, NotRun, Outcome, World, call, watched

SIZE = 8_000_000  # bytes: room for more than a run needs
NEEDED = 300_000  # bytes, less than a checkpoint takes
NOT_SAVED = "a checkpoint was not saved"


def fill(world: World, directory: Path, draw, number: int) -> Outcome:
    """The checkpoints alone, where only a save can fail, or the whole workdir lies on a small disk, in turn. It is
    filled up soon after a step, and stays full."""
    run = directory / "run"
    with small_disk(directory / "disk") as disk:
        if number % 2:
            run.symlink_to(disk)
        else:
            run.mkdir()
            (disk / "checkpoints").mkdir()
            (run / "checkpoints").symlink_to(disk / "checkpoints")
        with world.started(run, ALONE) as running:
            story = moments.at_a_step(running, run, draw, 4, STEPS // 2)
            left = int(draw.integers(NEEDED))
            keep_full(disk, left, running)
            [ended] = world.wait(running, run)
        story += f", {left} bytes left"
        (disk / "ballast").unlink(missing_ok=True)
        is_save, good = NOT_SAVED in ended.said, last_word(ended.said)
        wrong = ended_wrongly(ended)
        if not wrong and not is_save and not number % 2:
            wrong = f"not in a save: {ended.said}"
        with watched() as restored:
            again = call(*world.pretrain(run))
        if not wrong and (again.code or restored[0][0] != good):
            wrong = f"step {good} was named; the restart: {again}"
        wrong = wrong or world.difference(run, ALONE)
    kind = "in a save" if is_save else "at a report"
    return Outcome(not wrong, kind, f"{story}; {wrong or f'{kind}, step {good} named'}")


def ended_wrongly(ended) -> str:
    """What is wrong with the end of a run whose disk is full, or an empty text."""
    ours = [line for line in ended.said.splitlines() if line.startswith("bert-jax: ")]
    if ended.code != 1 or "Traceback" in ended.said or len(ours) != 1:
        return f"code {ended.code}, not one line: {ended.said}"
    return "" if last_word(ours[0]) is not None else f"no last good step: {ours[0]}"


def last_word(said: str) -> int | None:
    """The last good step as a failed run names it."""
    found = re.findall(r"the last checkpoint is step (\d+)", said)
    return int(found[-1]) if found else None


@contextlib.contextmanager
def small_disk(place: Path):
    """A disk of SIZE bytes in memory, which only root can have, or who may become root without a password."""
    place.mkdir()
    sudo = ["sudo", "-n"] if os.geteuid() else []
    command = [*sudo, "mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(place)]
    try:
        subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        reason = getattr(error, "stderr", "") or str(error)
        raise NotRun(f"no small disk: {reason.strip()}") from None
    try:
        yield place
    finally:
        subprocess.run([*sudo, "umount", "--lazy", str(place)], check=True)


def keep_full(disk: Path, left: int, running) -> None:
    """Until the run ends; it would get room where old checkpoints are deleted."""
    deadline = time.monotonic() + LIMIT
    while any(process.poll() is None for process in running) and time.monotonic() < deadline:
        fill_up(disk, left)
        time.sleep(moments.PAUSE)


def fill_up(disk: Path, left: int) -> None:
    """Leaves at most so many bytes."""
    more = shutil.disk_usage(disk).free - left
    if more > 0:
        with open(disk / "ballast", "ab") as file:
            with contextlib.suppress(OSError):  # the run takes some, too
                os.posix_fallocate(file.fileno(), file.tell(), more)
