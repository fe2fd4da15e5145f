"""Finds and verifies checkpoints; restores a state, or only its parameters, by Orbax.

In addition to Orbax's items, a checkpoint has the JSON file `fingerprints/metadata`: its step, the id of its run, a
fingerprint of every array (fingerprint.py), and the SHA-256 of all that. A checkpoint is valid ("verifies") if its
arrays have these fingerprints. Orbax's own metadata is not checked, nor are its files listed, as those of a store are
(data/manifest.py): they differ between meshes, and only the arrays are promised.
"""

import contextlib
import errno
import functools
import json
import logging
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np
import orbax.checkpoint as ocp

from bert_jax.checkpoints import fingerprint
from bert_jax.checkpoints.fingerprint import Leaf
from bert_jax.errors import BadInput, Unavailable, Unfinished, log, one_line
from bert_jax.parallel import cluster
from bert_jax.parallel.mesh import with_shardings
from bert_jax.storage import checksums, remote

ITEMS = ("params", "opt_state")
FINGERPRINTS = "fingerprints"
FORMAT = 1  # of fingerprints/metadata
UNFINISHED = "its save did not finish"
# Errors of the machine, not of the file: a later start may succeed.
TRANSIENT = (
    errno.EACCES,
    errno.EPERM,
    errno.EMFILE,
    errno.ENFILE,
    errno.ENOMEM,
    errno.ESTALE,
    errno.ETIMEDOUT,
    errno.EAGAIN,
)


class Newest(NamedTuple):
    """The newest checkpoint that verifies, and {step: reason} of the later ones that do not."""

    step: int | None
    skipped: dict[int, str]


# --- Finding --------------------------------------------------------------------------------------


def is_finished(path: Path) -> bool:
    """Returns whether Orbax finished a step's directory: on a disk it was renamed, in a bucket it has a marker file."""
    return path.is_dir() and ocp.utils.is_checkpoint_finalized(path)


def steps(directory: Path) -> list[int]:
    """Returns the steps of all checkpoints, newest first; in a bucket also of unfinished ones."""
    names = [path.name for path in directory.glob("*") if path.is_dir()]
    numbers = [int(name) for name in names if re.fullmatch("0|[1-9][0-9]{0,17}", name)]
    return sorted(numbers, reverse=True)


def newest(directory: Path) -> int | None:
    """Returns the newest step that Orbax finished, without verifying it."""
    for step in steps(directory):
        if is_finished(directory / str(step)):
            return step
    return None


def newest_verified(directory: Path, run: str, items=ITEMS, trees=None, last=sys.maxsize) -> Newest:
    """Returns the newest checkpoint whose items verify. Raises BadInput if there are finished ones and none verifies.

    run: the id of the run.
    trees: a dict that receives {item: tree}; without it, the arrays are discarded.
    last: the last step to read.
    """
    skipped = {}
    for step in steps(directory):
        if step > last:
            continue
        path = directory / str(step)
        was_finished = is_finished(path)  # first: in a bucket it may finish while it is read
        reason = problem(path, run, items, trees)
        if not reason:
            return Newest(step, skipped)
        skipped[step] = reason if was_finished else UNFINISHED
    if any(reason != UNFINISHED for reason in skipped.values()):
        reasons = "; ".join(describe(directory, skipped))
        raise BadInput(f"no checkpoint can be used: {reasons}; start again in another --workdir")
    return Newest(None, skipped)


def describe(directory: Path, skipped: dict[int, str]) -> list[str]:
    return [f"{directory}/{step}: {reason}" for step, reason in skipped.items()]


def problems(directory: Path, run: str) -> dict[int, str]:
    """Returns {step: why its checkpoint cannot be used, or ''}, oldest first. Skips checkpoints deleted in the
    meantime."""
    reasons = {step: problem(directory / str(step), run) for step in reversed(steps(directory))}
    remaining = steps(directory)
    return {step: reason for step, reason in reasons.items() if step in remaining}


def problem(path: Path, run: str, items: Iterable[str] = ITEMS, trees: dict | None = None) -> str:
    """Says why the checkpoint in the directory `path` cannot be used, or ''.

    Reads every array of these items and compares it with its fingerprint; an item that was not saved is skipped, since
    an import has only parameters. Raises Unfinished or Unavailable if the machine or the network fails.
    """
    try:
        metadata = read_metadata(path)
        reason = refusal(metadata, int(path.name), run)
        if reason:
            return reason
        leaves = leaves_of(metadata)
        for item in items:  # one at a time in memory
            saved = {name: leaf for name, leaf in leaves.items() if name.startswith(f"{item}/")}
            if not saved:
                continue
            tree = read(path, item)
            reason = fingerprint.differences(saved, fingerprint.of_tree({item: tree}))
            if reason:
                return reason
            if trees is not None:
                trees[item] = tree
    except Exception as error:  # on damaged files, Orbax and TensorStore raise errors of any type
        if is_machine_error(error):
            is_remote = remote.is_address(path) and remote.is_unreachable(error)
            error_type = Unavailable if is_remote else Unfinished
            raise error_type(f"{path}: cannot be read now ({one_line(error)})") from None
        return f"cannot be read ({one_line(error)})"
    return ""


def is_machine_error(error: Exception) -> bool:
    """Returns whether an error is caused by the machine rather than by a damaged checkpoint, and may not recur."""
    if isinstance(error, OSError) and error.errno in TRANSIENT:
        return True
    if isinstance(error, MemoryError | jax.errors.JaxRuntimeError):
        return True
    return remote.is_refused(error) or remote.is_unreachable(error)


# --- Fingerprints ---------------------------------------------------------------------------------


def items(state) -> dict:
    """Returns {item: tree} of a State."""
    return {name: getattr(state, name) for name in ITEMS}


def manifest(step: int, run: str, leaves: dict[str, Leaf]) -> dict:
    """Returns the content of `fingerprints/metadata`."""
    return checksums.sealed(
        {
            "format": FORMAT,
            "step": step,
            "run": run,
            "leaves": leaves,
        }
    )


def read_metadata(path: Path) -> dict:
    """Reads the file `fingerprints/metadata` of a checkpoint."""
    return json.loads((path / FINGERPRINTS / "metadata").read_text())


def read_manifest(path: Path) -> dict[str, Leaf]:
    """Reads {item/path: Leaf}, the fingerprints of a checkpoint."""
    return leaves_of(read_metadata(path))


def leaves_of(metadata: dict) -> dict[str, Leaf]:
    return {name: Leaf(*leaf) for name, leaf in metadata["leaves"].items()}


def refusal(values: dict, step: int, run: str) -> str:
    """Says why a manifest is not that of this step of this run, or ''."""
    if not isinstance(values, dict) or values.get("format") != FORMAT:
        return "its fingerprints have another format"
    if values != checksums.sealed(values):
        return "its fingerprints were altered (the SHA-256 differs)"
    if values["step"] != step:
        return f"belongs to step {values['step']}"
    if values["run"] != run:
        return "belongs to another run"
    return ""


@contextlib.contextmanager
def quiet():
    """Hides the stack traces that Orbax's threads log: the main thread gets the error and reports it in one line."""

    def has_no_trace(record) -> bool:
        return not record.exc_info

    hide_late_errors()
    loggers = [logging.getLogger(name) for name in ("absl", "asyncio")]
    for logger in loggers:
        logger.addFilter(has_no_trace)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(has_no_trace)


@functools.cache
def hide_late_errors() -> None:
    """Hides "Event loop is closed" for the rest of the process.

    If reading or writing one array fails, tasks of the other arrays may end after their event loop was closed, at any
    later time. Python prints that as an error which nobody can catch.
    """
    print_error = sys.unraisablehook

    def print_other_error(args) -> None:
        if "Event loop is closed" not in str(args.exc_value):
            print_error(args)

    sys.unraisablehook = print_other_error


# --- Restoring ------------------------------------------------------------------------------------


def handler() -> ocp.PyTreeCheckpointHandler:
    """Returns a handler that ignores Orbax's metadata about array layouts, which no fingerprint covers."""
    arrays = ocp.type_handlers.ArrayHandler(array_metadata_store=None)
    registry = ocp.type_handlers.create_type_handler_registry(
        (jax.Array, arrays), (np.ndarray, ocp.type_handlers.NumpyHandler())
    )
    return ocp.PyTreeCheckpointHandler(type_handler_registry=registry)


def read(path: Path, item: str):
    """Reads an item of a checkpoint as NumPy arrays, in this process only."""
    with quiet():
        tree = handler().metadata(path / item).tree
    arguments = jax.tree.map(lambda _: ocp.RestoreArgs(restore_type=np.ndarray), tree)
    return read_tree(path / item, tree, arguments)


def read_tree(path: Path, tree, arguments):
    """Reads the item in a directory.

    tree: of its arrays.
    arguments: a tree of Orbax's RestoreArgs for these.
    """
    with quiet():
        return handler().restore(path, args=ocp.args.PyTreeRestore(tree, arguments))


def restore_params(directory: Path, run: str, number: int, best: int | None):
    """Returns (newest step, params as NumPy arrays): the mean of the `number` newest checkpoints whose parameters
    verify, or those of the step `best`. Raises BadInput if there are fewer, or if that one does not verify."""
    trees = {}
    if best is not None:
        path = directory / str(best)
        reason = problem(path, run, ("params",), trees)
        if reason:
            hint = "name another one as RUN@STEP, or take the newest by evaluate.patience=0"
            raise BadInput(f"{path}: {reason}; {hint}")
        return best, trees["params"]
    params = {}  # by step
    last = sys.maxsize
    for _ in range(number):
        step, skipped = newest_verified(directory, run, ("params",), trees, last)
        for line in describe(directory, skipped):
            log(f"skipped {line}")
        if step is None:
            key = f"config.checkpoint.average={number}"
            raise BadInput(f"{key}: usable checkpoints in {directory}: {len(params)}")
        params[step] = trees["params"]
        last = step - 1
    mean = jax.tree.map(lambda first, *others: sum(others, first) / number, *params.values())
    return max(params), mean


def restore(path: Path, names: Iterable[str], shapes, shardings) -> dict:
    """Restores {item: tree} of some ITEMS of a State with these shapes and shardings. Raises Unfinished if it cannot be
    read, and Unavailable if an address is unreachable."""
    trees = with_shardings(items(shapes), items(shardings))
    try:
        arguments = ocp.checkpoint_utils.construct_restore_args(trees)
        return {name: read_tree(path / name, trees[name], arguments[name]) for name in names}
    except Exception as error:  # Orbax raises any type. Process 0 has verified the files before
        if cluster.is_loss(error):
            raise
        error_type = Unavailable if remote.is_unreachable(error) else Unfinished
        raise error_type(f"{path}: cannot be restored ({one_line(error)})") from None


def check_restored(path: Path, leaves: dict[str, Leaf]) -> None:
    """Raises Unfinished if the arrays on the devices differ from the checkpoint, although its files verify.

    leaves: the fingerprints of the restored arrays, {item/path: Leaf}.
    """
    reason = fingerprint.differences(read_manifest(path), leaves)
    if reason:
        raise Unfinished(f"{path}: restored with other values: {reason}")
