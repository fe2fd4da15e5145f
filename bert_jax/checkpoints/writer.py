"""Saves the state of a run by Orbax.

A step's directory contains `params` and `opt_state`, each readable without the other, and `fingerprints`, which
reader.py verifies before it restores anything.
"""

import contextlib
import logging
import shutil
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import jax
import orbax.checkpoint as ocp
from orbax.checkpoint.checkpoint_managers import AnyPreservationPolicy, EveryNSteps, LatestN

from bert_jax.checkpoints import fingerprint, reader
from bert_jax.errors import Unavailable, Unfinished, one_line
from bert_jax.parallel import cluster
from bert_jax.storage import remote

# One device saves a smaller array. To cut it for all devices that have it, JAX would compile programs for every shape.
SMALL_ARRAYS = ocp.type_handlers.ArrayHandler(min_slice_bytes_for_replica_parallel=1 << 20)
logger = logging.getLogger("absl")
level = logger.level
logger.setLevel(logging.ERROR)  # Orbax warns that its own handler is replaced
ocp.type_handlers.register_type_handler(jax.Array, SMALL_ARRAYS, override=True)
logger.setLevel(level)


class Manager(ocp.CheckpointManager):
    """Orbax's manager without its handling of preemption: runs/signals.py handles it."""

    def reached_preemption(self, step: int) -> bool:
        return False


class PreservedSteps(NamedTuple):
    """A policy that preserves the checkpoints of the steps that a sequence has at the time."""

    steps: Sequence[int]

    def should_preserve(self, checkpoints, context) -> list[bool]:
        return [checkpoint.step in self.steps for checkpoint in checkpoints]


@contextlib.contextmanager
def manager(directory: Path, keep: int = 1, keep_every: int = 0, preserved: Sequence[int] = ()):
    """Opens a CheckpointManager that saves in the background, and keeps some of the checkpoints.

    keep: how many of the newest.
    keep_every: those at multiples of so many steps, too; 0 for none.
    preserved: the steps of others, a sequence that changes during the run; Orbax's CustomSteps would copy it.
    """
    policies = [LatestN(keep), PreservedSteps(preserved)]
    if keep_every:
        policies.append(EveryNSteps(keep_every))
    options = ocp.CheckpointManagerOptions(
        preservation_policy=AnyPreservationPolicy(policies),
        enable_async_checkpointing=True,
    )
    names = (*reader.ITEMS, reader.FINGERPRINTS)
    with reader.quiet():
        checkpoints = Manager(directory, options=options, item_names=names)
        try:
            yield checkpoints
        except BaseException:
            # An error of the save in progress would hide the one that ended the run.
            with contextlib.suppress(Exception):
                checkpoints.close()
            raise
        with saving(checkpoints):
            checkpoints.close()


def name_last(directory: Path) -> str:
    """Names the last checkpoint, for a message."""
    step = reader.newest(directory)
    if step is None:
        return "there is no checkpoint"
    return f"the last checkpoint is step {step}"


def clean(directory: Path, rejected: Iterable[int]) -> list[Path]:
    """Deletes unfinished saves, which take disk space, and renames the checkpoints of the `rejected` steps; returns
    their new paths."""
    if not remote.is_address(directory):
        for path in directory.glob("*.orbax-checkpoint-tmp"):
            shutil.rmtree(path, ignore_errors=True)
    renamed = []
    for step in rejected:
        path = directory / str(step)
        if reader.is_finished(path):
            new_path = path.with_name(f"{step}.broken-{time.time_ns()}")
            renamed.append(path.rename(new_path))
        elif remote.is_address(path):
            # An unfinished save: in a bucket it has no temporary name.
            path.rmtree(missing_ok=True)
    return renamed


def save(checkpoints: Manager, step: int, items: dict, leaves: dict, run: str) -> None:
    """Starts a save, after the previous one has finished. Raises Unfinished if either fails.

    items: {item: tree}.
    leaves: their fingerprints, {item/path: Leaf}.
    run: the id of the run.
    """
    finish(checkpoints)
    with saving(checkpoints):
        args = {name: ocp.args.StandardSave(tree) for name, tree in items.items()}
        args[reader.FINGERPRINTS] = ocp.args.JsonSave(reader.manifest(step, run, leaves))
        if not checkpoints.save(step, args=ocp.args.Composite(**args)):
            raise RuntimeError(f"step {step}: Orbax already has this step or a later one")


def finish(checkpoints: Manager) -> None:
    """Waits until the last save has finished. Raises Unfinished if it failed."""
    with saving(checkpoints):
        checkpoints.wait_until_finished()


def check(checkpoints: Manager) -> None:
    """Raises Unfinished if a background save has failed; does not wait for one in progress."""
    if not checkpoints.is_saving_in_progress():
        finish(checkpoints)


@contextlib.contextmanager
def saving(checkpoints: Manager):
    """Turns library errors about writing a checkpoint into Unfinished or Unavailable.

    The loss of another process passes through: Orbax waits for all processes and raises it here.
    """
    try:
        yield
    except (Unavailable, Unfinished):
        raise
    except Exception as error:  # of any type, by Orbax, TensorStore or the file system
        if cluster.is_loss(error):
            raise
        text = f"{checkpoints.directory}: a checkpoint was not saved ({one_line(error)})"
        if remote.is_unreachable(error):
            raise Unavailable(text) from None
        raise Unfinished(f"{text}; {name_last(checkpoints.directory)}") from None


def save_params(directory: Path, params, run: str, step: int = 0) -> None:
    """Saves a checkpoint without the state of an optimizer, such as step 0 of a run that starts from given
    parameters."""
    items = {"params": jax.device_put(params, jax.local_devices()[0])}
    with manager(directory) as checkpoints:
        save(checkpoints, step, items, fingerprint.of_tree(items), run)
        finish(checkpoints)
