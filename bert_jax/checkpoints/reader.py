"""Checkpoints as they lie on the disk: which of them are what was saved; restoring a state, or its parameters alone.

Beside Orbax's items a checkpoint has `fingerprints/metadata`, JSON: the step and the run that it is of, a fingerprint
of every array (fingerprint.py), and the SHA-256 of all that.
"""

import contextlib
import errno
import functools
import json
import re
import sys
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np
import tensorstore

from bert_jax.checkpoints import fingerprint
from bert_jax.checkpoints.fingerprint import Leaf
from bert_jax.data import batch
from bert_jax.errors import BadInput, Missing, Unfinished, one_line
from bert_jax.parallel.mesh import path_name, placed
from bert_jax.storage import checksums, regular_files, remote

ITEMS = ("params", "opt_state")
FINGERPRINTS = "fingerprints"
FORMAT = 1
STEP = re.compile("0|[1-9][0-9]{0,17}")  # the name of a step's directory
WHOLE = "_CHECKPOINT_METADATA"  # the file that Orbax writes into a step's directory
COMMITTED = "commit_success.txt"  # and its last, at an address


LONGEST = 300  # characters of a message
TOGETHER = 8  # arrays of an address that are read at a time: each waits for several answers
CACHE = {"total_bytes_limit": 1 << 26}
TRANSIENT = (errno.EACCES, errno.EPERM, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ESTALE)
TRANSIENT += (errno.ETIMEDOUT, errno.EAGAIN)
# How TensorStore's errors begin where the same is so.
UNREACHABLE = (*remote.UNREACHABLE, "PERMISSION_DENIED", "UNAUTHENTICATED")


class Found(NamedTuple):
    """The newest checkpoint that verifies, and why later ones are not taken."""

    step: int | None
    skipped: dict[int, str]


# --- Which are there ------------------------------------------------------------------------------


def is_whole(place: Path) -> bool:
    """Whether Orbax finished a step's directory, by its names alone."""
    return is_committed(place) if remote.is_address(place) else (place / WHOLE).is_file()


def is_committed(place: Path) -> bool:
    """The same at an address, where nothing is renamed at the end: Orbax writes COMMITTED last. What was copied there
    from a disk may have only the time, in its metadata."""
    if (place / COMMITTED).exists():
        return True
    try:
        text = (place / WHOLE).read_bytes()
    except FileNotFoundError:
        return False
    with contextlib.suppress(KeyError, TypeError, ValueError):
        return bool(json.loads(text)["commit_timestamp_nsecs"])
    return True  # damaged, which is no reason to delete it


def steps(directory: Path) -> list[int]:
    """The steps of which something was saved, whole or not, newest first. At an address only whole ones: what a save
    that was cut off has left there has no other name."""
    named = [path for path in directory.glob("*") if STEP.fullmatch(path.name)]
    if remote.is_address(directory):
        there = [path for path in named if is_committed(path)]
    else:
        there = [path for path in named if any((path / name).exists() for name in (WHOLE, *ITEMS))]
    return sorted((int(path.name) for path in there), reverse=True)


def newest(directory: Path) -> int | None:
    """The newest step that was saved whole, read from the names alone."""
    return next((step for step in steps(directory) if is_whole(directory / str(step))), None)


def newest_sound(directory: Path, run: str, items: Iterable[str] = ITEMS) -> Found:
    """The newest checkpoint of which these items verify. Raises BadInput where there are some and none does."""
    skipped = {}
    for step in steps(directory):
        reason = problem(directory / str(step), run, items)
        if not reason:
            return Found(step, skipped)
        skipped[step] = reason
    if skipped:
        told = "; ".join(describe(directory, skipped))
        raise BadInput(f"no checkpoint can be used: {told}; begin anew in another --workdir")
    return Found(None, {})


def describe(directory: Path, skipped: dict[int, str]) -> list[str]:
    return [f"{directory}/{step}: {reason}" for step, reason in skipped.items()]


def problems(directory: Path, run: str) -> dict[int, str]:
    """What is wrong with each checkpoint of a run, oldest first; an empty text where nothing is. Those that a run which
    goes on has deleted meanwhile are left out."""
    found = {step: problem(directory / str(step), run) for step in reversed(steps(directory))}
    there = steps(directory)
    return {step: found[step] for step in found if step in there}


def problem(place: Path, run: str, items: Iterable[str] = ITEMS) -> str:
    """Why the checkpoint in the directory `place` cannot be used, or an empty text: every array is read and compared
    with its fingerprint."""
    try:
        if not is_whole(place):
            return "not whole"
        if not (place / FINGERPRINTS / "metadata").is_file():
            return "its fingerprints are missing"
        text = json.loads((place / FINGERPRINTS / "metadata").read_text())
        for path in () if remote.is_address(place) else place.rglob("*"):
            if not path.is_dir():
                regular_files.check(path)  # TensorStore would wait for a pipe
        reason = refusal(text, int(place.name), run)
        if reason:
            return reason
        kept = leaves_of(text)
        kept = {name: kept[name] for name in kept if name.partition("/")[0] in items}
        missing = {name.partition("/")[0] for name in kept} - {
            path.name for path in place.iterdir()
        }
        if missing:
            return f"{min(missing)} is missing"
        return fingerprint.differences(kept, read_fingerprints(place, kept))
    except Exception as error:  # what reads the files of a checkpoint raises what it likes
        if is_of_machine(error):
            away = remote.is_address(place) and remote.is_out_of_reach(error)
            kind = Missing if away else Unfinished
            raise kind(f"{place}: cannot be read now ({one_line(error)})"[:LONGEST]) from None
        return f"cannot be read ({one_line(error)})"


def is_of_machine(error: Exception) -> bool:
    """Whether it is no fault of the checkpoint's that it cannot be read: the next start may."""
    if remote.is_refused(error) or remote.is_out_of_reach(error):
        return True
    if isinstance(error, OSError):
        return error.errno in TRANSIENT
    return isinstance(error, MemoryError) or str(error).startswith(UNREACHABLE)


# --- Fingerprints ---------------------------------------------------------------------------------


def items(state) -> dict:
    """{item: tree} of a State."""
    return {name: getattr(state, name) for name in ITEMS}


def fingerprints(items: dict) -> dict[str, Leaf]:
    """{item/path: Leaf} of trees that this host can see, by item."""
    leaves = jax.tree.leaves_with_path(items)
    with ThreadPoolExecutor(2) as pool:  # NumPy counts without the interpreter's lock
        found = pool.map(lambda leaf: fingerprint.of_array(np.asarray(leaf[1])), leaves)
        return {path_name(path): leaf for (path, _), leaf in zip(leaves, found, strict=True)}


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


# --- Reading --------------------------------------------------------------------------------------


def read_fingerprints(place: Path, names: Iterable[str]) -> dict[str, Leaf]:
    """What the arrays of these names are now."""
    cache, threads = one_cache(place), TOGETHER if remote.is_address(place) else 2
    with ThreadPoolExecutor(threads) as pool:
        found = pool.map(lambda name: fingerprint.of_array(read(place, name, cache)), names)
        return dict(zip(names, found, strict=True))


def one_cache(place: Path) -> tensorstore.Context | None:
    """For arrays of an address that are read one after the other: what leads to all of them is asked for once."""
    return tensorstore.Context({"cache_pool": CACHE}) if remote.is_address(place) else None


def read(place: Path, name: str, cache: tensorstore.Context | None = None) -> np.ndarray:
    """The array item/path of a checkpoint."""
    return open_array(place, name, cache).read().result()


def open_array(
    place: Path, name: str, cache: tensorstore.Context | None = None
) -> tensorstore.TensorStore:
    """The array item/path of a checkpoint, of which nothing is read yet: Orbax writes an item as one OCDBT database of
    zarr arrays. Read without Orbax, which relies on files that no fingerprint covers."""
    item, *path = name.split("/")
    base = {"driver": "file", "path": f"{(place / item).absolute()}/"}
    if remote.is_address(place):
        base = f"{place / item}/"  # TensorStore has drivers for gs:// and s3://
    key = ".".join(part.strip("[]") for part in path)
    store = {"driver": "ocdbt", "base": base, "path": key}
    spec = {"driver": "zarr", "kvstore": store}
    return tensorstore.open(spec, open=True, read=True, context=cache).result()


def to_devices(place: Path, name: str, leaf: jax.ShapeDtypeStruct, cache=None) -> jax.Array:
    """An array of a checkpoint laid out as `leaf` has it: each host reads what its devices hold, once."""
    array = open_array(place, name, cache)
    if (array.shape, array.dtype.numpy_dtype) != (leaf.shape, leaf.dtype):
        raise ValueError(f"{name} is {array.dtype.name}{list(array.shape)} on the disk")

    @functools.cache
    def part(bounds):
        return array[tuple(slice(*bound) for bound in bounds)].read().result()

    def callback(index):
        return part(tuple(i.indices(n)[:2] for i, n in zip(index, leaf.shape, strict=True)))

    return jax.make_array_from_callback(leaf.shape, leaf.sharding, callback)


class Stored:
    """A parameter in a checkpoint: np.asarray reads it."""

    def __init__(self, place: Path, path: tuple, leaf: jax.ShapeDtypeStruct):
        self.place, self.name = place, f"params/{path_name(path)}"
        self.shape, self.dtype, self.size = leaf.shape, leaf.dtype, leaf.size

    def __array__(self, dtype=None, copy=None) -> np.ndarray:
        return read(self.place, self.name).astype(dtype or self.dtype, copy=bool(copy))


def stored_params(directory: Path, objective, run: str):
    """(step, params) of the newest checkpoint whose parameters verify; they are read from the disk when they are used,
    for what takes them in order, one by one, and has no memory for all."""
    found = newest_sound(directory, run, ("params",))
    if found.step is None:
        raise BadInput(f"{directory}: no checkpoints yet")
    for line in describe(directory, found.skipped):
        print(f"skipped {line}", file=sys.stderr, flush=True)
    place, shapes = directory / str(found.step), params_shapes(objective)
    check_shapes(place, shapes)
    return found.step, jax.tree.map_with_path(functools.partial(Stored, place), shapes)


def restore_params(directory: Path, objective, run: str):
    """(step, params) like stored_params, on the first device."""
    step, params = stored_params(directory, objective, run)
    device = jax.local_devices()[0]
    return step, jax.tree.map(lambda leaf: jax.device_put(np.asarray(leaf), device), params)


def check_shapes(place: Path, shapes) -> None:
    """Raises BadInput where a checkpoint holds other parameters than the run's config says."""
    kept = read_manifest(place)
    there = {name: tuple(leaf.shape) for name, leaf in kept.items() if name.startswith("params/")}
    asked = {
        f"params/{path_name(path)}": leaf.shape for path, leaf in jax.tree.leaves_with_path(shapes)
    }
    for name in sorted(there | asked):
        if there.get(name) != asked.get(name):
            raise BadInput(
                f"{place}: {name} has the shape {there.get(name)}, {asked.get(name)} by the config"
            )


def params_shapes(objective):
    """Parameters do not depend on the size of the batch they are initialised with."""
    return jax.eval_shape(objective.init, jax.random.key(0), batch.shapes(1, 8, 1))


# --- Restoring ---------------------------------------------------------------------------------


def restore(place: Path, shapes, places):
    """The State saved in a step's directory, of these shapes, laid out as `places`."""
    items = restore_items(place, ITEMS, shapes, places)
    step = jax.device_put(jax.numpy.int32(int(place.name)), places.step)
    return shapes._replace(step=step, **items)


def restore_items(place: Path, names: Iterable[str], shapes, places) -> dict:
    """Some of the ITEMS saved in a step's directory, by name. Raises Unfinished where they cannot be read."""
    shapes, places = ({name: items(tree)[name] for name in names} for tree in (shapes, places))
    cache = one_cache(place)
    try:
        return jax.tree.map_with_path(
            lambda path, leaf: to_devices(place, path_name(path), leaf, cache),
            placed(shapes, places),
        )
    except Exception as error:  # of TensorStore, though process 0 has just read all of it
        reason = one_line(error, LONGEST)
        raise Unfinished(f"{place}: cannot be restored ({reason})") from None


def check_restored(place: Path, leaves: dict[str, fingerprint.Leaf]) -> None:
    """Raises Unfinished where what lies on the devices is not what was saved, though it was read as it was."""
    kept = read_manifest(place)
    items = {name.partition("/")[0] for name in kept}  # of an import, parameters alone
    found = {name: leaf for name, leaf in leaves.items() if name.partition("/")[0] in items}
    different = fingerprint.differences(kept, found)
    if different:
        raise Unfinished(f"{place}: lies otherwise on the devices: {different}")
