"""Saving the state of a run, by Orbax.

A step's directory holds `params`, `opt_state`, each readable without the other, and `fingerprints`: what reader.py
checks before anything is restored.
"""

import contextlib
import shutil
import time
from collections.abc import Iterable
from pathlib import Path

import jax
import orbax.checkpoint as ocp
from orbax.checkpoint.checkpoint_managers import AnyPreservationPolicy, EveryNSteps, LatestN

from bert_jax.checkpoints import fingerprint, reader
from bert_jax.errors import Missing, Unfinished, one_line
from bert_jax.parallel import processes as cluster
from bert_jax.storage import remote


class Manager(ocp.CheckpointManager):
    """Orbax's, which leaves signals to runs/signals.py."""

    def reached_preemption(self, step: int) -> bool:
        return False


@contextlib.contextmanager
def manager(directory: Path, keep: int = 1, keep_every: int = 0):
    """A context that gives a CheckpointManager, which saves in the background; it keeps the newest `keep` and every one
    at a multiple of `keep_every`."""
    policies = [LatestN(keep)] + ([EveryNSteps(keep_every)] if keep_every else [])
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
            # An error of what is still being saved would hide the one that matters.
            with contextlib.suppress(Exception):
                checkpoints.close()
            raise
        with saving(checkpoints):
            checkpoints.close()


def last_word(directory: Path) -> str:
    """For a message: what is left when a run ends."""
    step = reader.newest(directory)
    return "no checkpoint is there" if step is None else f"the last checkpoint is step {step}"


def clean(directory: Path, rejected: Iterable[int]) -> list[Path]:
    """Deletes what saves that were cut off have left, for which a full disk may need the room, and renames the
    directories of the steps that did not verify; returns their new names."""
    for path in () if remote.is_address(directory) else directory.glob("*.orbax-checkpoint-tmp"):
        shutil.rmtree(path, ignore_errors=True)
    renamed = []
    for path in [directory / str(step) for step in rejected]:
        if reader.is_finished(path):
            renamed.append(path.rename(path.with_name(f"{path.name}.broken-{time.time_ns()}")))
        elif remote.is_address(path):
            # Of a save that was cut off: nothing there has a temporary name.
            path.rmtree(missing_ok=True)
    return renamed


def save(checkpoints: Manager, step: int, items: dict, leaves: dict, run: str) -> None:
    """Starts to save; raises Unfinished where it, or the save before it, has failed.

    items: {item: tree}; leaves: their fingerprints, {item/path: Leaf}; run: the id of the run.
    """
    finish(checkpoints)
    with saving(checkpoints):
        what = {name: ocp.args.StandardSave(tree) for name, tree in items.items()}
        what[reader.FINGERPRINTS] = ocp.args.JsonSave(reader.manifest(step, run, leaves))
        if not checkpoints.save(step, args=ocp.args.Composite(**what)):
            raise RuntimeError(f"step {step}: Orbax sees a later one, or this one, already")


def finish(checkpoints: Manager) -> None:
    """Waits until what was saved last lies on the disk; raises Unfinished where it does not."""
    with saving(checkpoints):
        checkpoints.wait_until_finished()
        step = checkpoints.latest_step()
        # Process 0 finishes a step's directory; others may see that later.
        if jax.process_index() == 0 and step is not None:
            place = checkpoints.directory / str(step)
            if not reader.is_finished(place):
                raise FileNotFoundError(f"{place} has gone")


def check(checkpoints: Manager) -> None:
    """Raises Unfinished where a save in the background has failed; does not wait for one that goes on."""
    if not checkpoints.is_saving_in_progress():
        with saving(checkpoints):
            checkpoints.wait_until_finished()


@contextlib.contextmanager
def saving(checkpoints: Manager):
    """What a library raises because a checkpoint cannot be written becomes one line. Not where it is another process
    that is gone: Orbax waits for all."""
    try:
        yield
    except (Missing, Unfinished):
        raise
    except Exception as error:  # of Orbax, TensorStore, the file system: they raise what they like
        if cluster.is_loss(error):
            raise
        reason = one_line(error, reader.LONGEST)
        text = f"{checkpoints.directory}: a checkpoint was not saved ({reason})"
        if remote.is_out_of_reach(error):
            raise Missing(text) from None
        raise Unfinished(f"{text}; {last_word(checkpoints.directory)}") from None


def save_params(directory: Path, params, run: str) -> None:
    """Step 0 of a run that starts from given parameters; it has no optimizer state yet."""
    items = {"params": params}
    with manager(directory) as checkpoints:
        save(checkpoints, 0, items, fingerprint.of_tree(items), run)
        finish(checkpoints)
