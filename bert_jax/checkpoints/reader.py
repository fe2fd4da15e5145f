"""Checkpoints that are there: which of them are what was saved; restoring a state, or its parameters alone, by Orbax.

Beside Orbax's items a checkpoint has `fingerprints/metadata`, JSON: the step and the run that it is of, a fingerprint
of every array (fingerprint.py), and the SHA-256 of all that. A checkpoint is good where its arrays have these
fingerprints, whatever else Orbax has written beside them.
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
from bert_jax.errors import BadInput, Missing, Unfinished, one_line
from bert_jax.parallel import processes as cluster
from bert_jax.parallel.mesh import placed
from bert_jax.storage import checksums, remote

ITEMS = ("params", "opt_state")
FINGERPRINTS = "fingerprints"
FORMAT = 1
CUT_OFF = "its save was cut off"
STEP = re.compile("0|[1-9][0-9]{0,17}")  # the name of a step's directory
LONGEST = 300  # characters of a message
TRANSIENT = (errno.EACCES, errno.EPERM, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ESTALE)
TRANSIENT += (errno.ETIMEDOUT, errno.EAGAIN)


class Found(NamedTuple):
    """The newest checkpoint that verifies, and why later ones are not taken."""

    step: int | None
    skipped: dict[int, str]


# --- Which are there ------------------------------------------------------------------------------


def is_finished(place: Path) -> bool:
    """Whether Orbax finished a step's directory: on a disk it has its name, at an address a file that says so."""
    return place.is_dir() and ocp.utils.is_checkpoint_finalized(place)


def steps(directory: Path) -> list[int]:
    """The steps of which something has been saved, newest first; at an address also those that are being saved."""
    named = [path for path in directory.glob("*") if STEP.fullmatch(path.name) and path.is_dir()]
    return sorted((int(path.name) for path in named), reverse=True)


def newest(directory: Path) -> int | None:
    """The newest step that Orbax finished; nothing in it is read."""
    return next((step for step in steps(directory) if is_finished(directory / str(step))), None)


def newest_verified(directory: Path, run: str, items: Iterable[str] = ITEMS, trees=None) -> Found:
    """The newest checkpoint of which these items verify. Raises BadInput where some were saved and none does.

    trees: a dict, which gets {item: tree}; by default nothing that was read is kept.
    """
    skipped = {}
    for step in steps(directory):
        place = directory / str(step)
        is_whole = is_finished(place)  # at an address it may become so while it is read
        if not (reason := problem(place, run, items, trees)):
            return Found(step, skipped)
        skipped[step] = reason if is_whole else CUT_OFF
    if any(reason != CUT_OFF for reason in skipped.values()):
        told = "; ".join(describe(directory, skipped))
        raise BadInput(f"no checkpoint can be used: {told}; begin anew in another --workdir")
    return Found(None, skipped)


def describe(directory: Path, skipped: dict[int, str]) -> list[str]:
    return [f"{directory}/{step}: {reason}" for step, reason in skipped.items()]


def problems(directory: Path, run: str) -> dict[int, str]:
    """{step: why its checkpoint cannot be used, or an empty text}, oldest first. Skips checkpoints that a running
    training has deleted meanwhile."""
    found = {step: problem(directory / str(step), run) for step in reversed(steps(directory))}
    return {step: found[step] for step in reversed(steps(directory)) if step in found}


def problem(place: Path, run: str, items: Iterable[str] = ITEMS, trees: dict | None = None) -> str:
    """Why the checkpoint in the directory `place` cannot be used, or an empty text: every array is read and compared
    with its fingerprint. Of an imported model there are parameters alone."""
    try:
        text = json.loads((place / FINGERPRINTS / "metadata").read_text())
        if reason := refusal(text, int(place.name), run):
            return reason
        leaves = leaves_of(text)
        for item in items:  # one at a time in memory
            if saved := {name: leaves[name] for name in leaves if name.startswith(f"{item}/")}:
                tree = read(place, item)
                if reason := fingerprint.differences(saved, fingerprint.of_tree({item: tree})):
                    return reason
                if trees is not None:
                    trees[item] = tree
    except Exception as error:  # what reads the files of a checkpoint raises what it likes
        if is_of_machine(error):
            away = remote.is_address(place) and remote.is_out_of_reach(error)
            kind = Missing if away else Unfinished
            raise kind(f"{place}: cannot be read now ({one_line(error)})"[:LONGEST]) from None
        return f"cannot be read ({one_line(error)})"[:LONGEST]
    return ""


def is_of_machine(error: Exception) -> bool:
    """Whether it is no fault of the checkpoint's that it cannot be read: the next start may."""
    if isinstance(error, OSError) and error.errno in TRANSIENT:
        return True
    of_devices = isinstance(error, MemoryError | jax.errors.JaxRuntimeError)
    return of_devices or remote.is_refused(error) or remote.is_out_of_reach(error)


# --- Fingerprints ---------------------------------------------------------------------------------


def items(state) -> dict:
    """{item: tree} of a State."""
    return {name: getattr(state, name) for name in ITEMS}


def manifest(step: int, run: str, leaves: dict[str, Leaf]) -> dict:
    values = {"format": FORMAT, "step": step, "run": run, "leaves": leaves}
    return values | {"digest": checksums.manifest_digest(values)}


def read_manifest(place: Path) -> dict[str, Leaf]:
    """{item/path: Leaf} as they were saved."""
    return leaves_of(json.loads((place / FINGERPRINTS / "metadata").read_text()))


def leaves_of(values: dict) -> dict[str, Leaf]:
    return {name: Leaf(*leaf) for name, leaf in values["leaves"].items()}


def refusal(values: dict, step: int, run: str) -> str:
    if not isinstance(values, dict) or values.get("format") != FORMAT:
        return "its fingerprints are of another format"
    if values["digest"] != checksums.manifest_digest(values):
        return "its fingerprints are not as they were written"
    if values["step"] != step:
        return f"is that of step {values['step']}"
    return "" if values["run"] == run else "is that of another run"


@contextlib.contextmanager
def quiet():
    """Keeps Orbax's threads from printing what they raise, stack by stack: the main thread is told, and says a line."""

    def is_news(record) -> bool:
        return not record.exc_info

    drop_late_errors()
    loggers = logging.getLogger("absl"), logging.getLogger("asyncio")
    for logger in loggers:
        logger.addFilter(is_news)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(is_news)


@functools.cache
def drop_late_errors() -> None:
    """Of arrays whose reading or writing ends when that of another has failed: their event loop is gone then. For as
    long as the process lives, as no one knows when they come."""
    before = sys.unraisablehook

    def unraisable(args) -> None:
        if "Event loop is closed" not in str(args.exc_value):
            before(args)

    sys.unraisablehook = unraisable


# --- Restoring ------------------------------------------------------------------------------------


def handler() -> ocp.PyTreeCheckpointHandler:
    """Reads arrays without Orbax's notes on how they were laid out, which no fingerprint covers."""
    arrays = ocp.type_handlers.ArrayHandler(array_metadata_store=None)
    registry = ocp.type_handlers.create_type_handler_registry(
        (jax.Array, arrays), (np.ndarray, ocp.type_handlers.NumpyHandler())
    )
    return ocp.PyTreeCheckpointHandler(type_handler_registry=registry)


def read(place: Path, item: str):
    """An item of a checkpoint as NumPy arrays, in this process alone."""
    place = place / item
    with quiet():
        tree = handler().metadata(place).tree
        as_numpy = jax.tree.map(lambda _: ocp.RestoreArgs(restore_type=np.ndarray), tree)
        return handler().restore(place, args=ocp.args.PyTreeRestore(tree, as_numpy))


def restore_params(directory: Path, run: str):
    """(step, params) of the newest checkpoint whose parameters verify, as NumPy arrays."""
    trees = {}
    found = newest_verified(directory, run, ("params",), trees)
    if found.step is None:
        raise BadInput(f"{directory}: no checkpoints yet")
    for line in describe(directory, found.skipped):
        print(f"skipped {line}", file=sys.stderr, flush=True)
    return found.step, trees["params"]


def restore(place: Path, names: Iterable[str], shapes, places) -> dict:
    """{item: tree} of some ITEMS of a State with these shapes, laid out as `places`. Raises Unfinished where it cannot
    be read, and Missing where an address is out of reach."""
    wanted = placed(items(shapes), items(places))
    try:
        return {name: read_placed(place / name, wanted[name]) for name in names}
    except Exception as error:  # of Orbax, though process 0 has just read all of it
        if cluster.is_loss(error):
            raise
        kind = Missing if remote.is_out_of_reach(error) else Unfinished
        raise kind(f"{place}: cannot be restored ({one_line(error)})"[:LONGEST]) from None


def read_placed(place: Path, tree):
    arguments = ocp.checkpoint_utils.construct_restore_args(tree)
    with quiet():
        return handler().restore(place, args=ocp.args.PyTreeRestore(tree, arguments))


def check_restored(place: Path, leaves: dict[str, Leaf]) -> None:
    """Raises Unfinished where what lies on the devices is not what was saved, though it was read as it was.

    leaves: the fingerprints of what was restored, {item/path: Leaf}.
    """
    if reason := fingerprint.differences(read_manifest(place), leaves):
        raise Unfinished(f"{place}: lies otherwise on the devices: {reason}")
