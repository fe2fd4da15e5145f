"""Damaged checkpoints, a full disk, and values that are not finite: each is detected, reported, and never trained on.

A run that resumed from anything but a saved state would not end with the same bits.
"""

import contextlib
import os
import re
import shutil
import subprocess
import time

import jax
import numpy as np
import pytest
from kits.damage import flip_bit
from kits.waiting import wait_until

from bert_jax.checkpoints import reader
from faults.world import ALONE, EVERY, HALF, LIMIT, STEPS, last_step

pytestmark = [pytest.mark.full, pytest.mark.slow]

SIZE = 40_000_000  # bytes of a small disk, more than a run needs
ROOM = 300_000  # bytes, less than a checkpoint needs


def pick(checkpoint, draw):
    """Draws a file that is not empty; every other time one with arrays."""
    paths = sorted(checkpoint.glob(draw.choice(["*/d/*", "**/*"])))
    return draw.choice([path for path in paths if path.is_file() and path.stat().st_size])


def flip(world, checkpoint, draw):
    path = pick(checkpoint, draw)
    flip_bit(path, draw.integers(path.stat().st_size), int(draw.integers(8)))


def truncate(world, checkpoint, draw):
    path = pick(checkpoint, draw)
    os.truncate(path, draw.choice([0, draw.integers(path.stat().st_size)]))


def delete(world, checkpoint, draw):
    pick(checkpoint, draw).unlink()


def mixed(world, checkpoint, draw):
    """Replaces an item by that of the previous step."""
    item = str(draw.choice(reader.ITEMS))
    before = checkpoint.with_name(f"{int(checkpoint.name) - EVERY}")
    shutil.rmtree(checkpoint / item)
    shutil.copytree(before / item, checkpoint / item)


DAMAGES = [truncate, delete, mixed]


def test_a_flipped_bit(world, run, draw):
    check_damaged(world, run, draw, flip)


def test_a_damaged_checkpoint(world, run, draw, turn):
    check_damaged(world, run, draw, DAMAGES[turn % len(DAMAGES)])


def check_damaged(world, run, draw, damage) -> None:
    """Damages the newest checkpoint, or the newest two. The run must resume from the newest undamaged one, and rename
    those that it skips. Checkpoints of others and other files: tests/checkpoints/test_reader.py."""
    checkpoint = world.half_done(run) / f"checkpoints/{HALF}"
    number = int(draw.integers(1, 3))
    for back in range(number):
        damage(world, checkpoint.with_name(f"{HALF - back * EVERY}"), draw)
    existing = list(checkpoint.parent.iterdir())
    step = world.finish(run, ALONE, **{"checkpoint.keep": STEPS})
    assert HALF - number * EVERY <= step <= HALF
    for path in existing:
        is_skipped = int(path.name) > step
        assert list(checkpoint.parent.glob(f"{path.name}.broken*")) if is_skipped else path.exists()


@contextlib.contextmanager
def small_disk(directory):
    """Mounts a small disk in memory, which needs root or sudo without a password; otherwise skips the test."""
    directory.mkdir()
    sudo = ["sudo", "-n"] if os.geteuid() else []
    command = [*sudo, "mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(directory)]
    try:
        subprocess.run(command, capture_output=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no small disk")
    try:
        yield directory
    finally:
        subprocess.run([*sudo, "umount", "--lazy", str(directory)], check=True)


def keep_full(disk, left: int, process) -> None:
    """Keeps at most `left` bytes free until the run ends, although it deletes old checkpoints."""
    deadline = time.monotonic() + LIMIT
    while process.poll() is None:
        assert time.monotonic() < deadline
        with open(disk / "ballast", "ab") as file, contextlib.suppress(OSError):
            if (more := shutil.disk_usage(disk).free - left) > 0:
                os.posix_fallocate(file.fileno(), file.tell(), more)
        time.sleep(0.002)


def test_a_full_disk(world, tmp_path, draw):
    """In a save or at a report: a line names the last good step, from which the run resumes once there is space."""
    step = int(draw.integers(EVERY + 1, HALF))
    with small_disk(tmp_path / "disk") as disk:
        run = disk / "run"
        with world.start(run) as [process]:
            wait_until(lambda: process.poll() is not None or last_step(run) >= step, LIMIT)
            keep_full(disk, int(draw.integers(ROOM)), process)
            [ended] = world.wait([process])
        (disk / "ballast").unlink(missing_ok=True)
        [line] = [line for line in ended.errors.splitlines() if line.startswith("bert-jax: ")]
        good = re.search(r"the last checkpoint is step (\d+)|there is no checkpoint", line)
        assert ended.code == 1 and "Traceback" not in ended.errors and good, ended
        assert world.finish(run) == int(good[1] or 0)


def test_numbers_that_are_not_finite(world, run, draw, turn):
    """In turn in one step, which is skipped, and in so many that the run stops and is restarted."""
    step, stop = int(draw.integers(1, 7)), {"guard.stop_after": 3}
    if turn % 2 == 0:
        [ended] = world.run(run, ALONE, f"0:step:{step}:nan", **stop)
        assert re.search(rf"^step {step}: .*; skipped$", ended.output, re.M) and not ended.code
        end = run / f"checkpoints/{STEPS}"
        for item in reader.ITEMS:
            leaves = jax.tree.leaves(reader.read(end, item))
            assert all(np.isfinite(leaf).all() for leaf in leaves)
    else:
        [ended] = world.run(run, ALONE, f"0:step:{step}-{step + 2}:nan", **stop)
        named = re.search(rf"bert-jax inspect .*--step {step}$", ended.errors, re.M)
        assert ended.code == 1 and named, ended
        world.finish(run, **stop)
