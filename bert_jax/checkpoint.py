"""Orbax behind one door: save, the newest step, the whole state or its parameters alone."""

import functools
import operator
import time
from pathlib import Path

import jax
import numpy as np
import orbax.checkpoint as ocp
from orbax.checkpoint.checkpoint_managers import AnyPreservationPolicy, EveryNSteps, LatestN

from bert_jax import batch, sharding
from bert_jax.errors import BadInput
from bert_jax.step import State

ITEMS = ("params", "opt_state")


def manager(directory: Path, keep: int = 1, keep_every: int = 0) -> ocp.CheckpointManager:
    """Saves in the background; keeps the newest `keep` and every one at a multiple of `keep_every`."""
    policies = [LatestN(keep)] + ([EveryNSteps(keep_every)] if keep_every else [])
    options = ocp.CheckpointManagerOptions(
        preservation_policy=AnyPreservationPolicy(policies),
        enable_async_checkpointing=True,
    )
    return ocp.CheckpointManager(Path(directory).absolute(), options=options, item_names=ITEMS)


WHOLE = "_CHECKPOINT_METADATA"  # the file that Orbax writes into a step's directory


def newest(directory: Path) -> int | None:
    """The newest step that was saved whole, read from the names alone."""
    names = [path.parent.name for path in Path(directory).glob(f"*/{WHOLE}")]
    return max((int(name) for name in names if name.isdecimal()), default=None)


def set_aside(directory: Path) -> list[Path]:
    """Renames what has a step's name but is no checkpoint: Orbax would take it for one. Returns the new names."""
    strays = [
        path
        for path in Path(directory).glob("*")
        if path.name.isdecimal() and not (path / WHOLE).exists()
    ]
    return [path.rename(path.with_name(f"{path.name}.broken-{time.time_ns()}")) for path in strays]


def save(checkpoints: ocp.CheckpointManager, step: int, state: State) -> None:
    """Starts to save; an error of the save before it is raised here."""
    checkpoints.wait_until_finished()
    items = {name: ocp.args.StandardSave(getattr(state, name)) for name in ITEMS}
    checkpoints.save(step, args=ocp.args.Composite(**items))


def save_params(directory: Path, params) -> None:
    """Step 0 of a run that starts from given parameters; it has no optimizer state yet."""
    with manager(directory) as checkpoints:
        args = ocp.args.Composite(params=ocp.args.StandardSave(params))
        checkpoints.save(0, args=args)
        checkpoints.wait_until_finished()


def restore(checkpoints: ocp.CheckpointManager, step: int, shapes: State, places: State) -> State:
    """The state saved at `step`, laid out as `places`."""
    items = restore_items(checkpoints, step, ITEMS, shapes, places)
    return State(jax.device_put(jax.numpy.int32(step), places.step), **items)


def restore_items(checkpoints, step: int, names, shapes: State, places: State) -> dict:
    """Some of the ITEMS saved at `step`, by name."""

    def target(name):
        tree = sharding.placed(getattr(shapes, name), getattr(places, name))
        return ocp.args.StandardRestore(tree)

    args = ocp.args.Composite(**{name: target(name) for name in names})
    items = checkpoints.restore(step, args=args)
    return {name: items[name] for name in names}


def restore_params(directory: Path, objective):
    """(step, params) of the newest checkpoint, on the first device; the optimizer state is not read."""
    step = newest_or_refuse(directory)
    with manager(directory) as checkpoints:
        place = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
        shapes = params_shapes(objective)
        target = sharding.placed(shapes, jax.tree.map(lambda _: place, shapes))
        args = ocp.args.Composite(params=ocp.args.StandardRestore(target))
        return step, checkpoints.restore(step, args=args)["params"]


def newest_or_refuse(directory: Path) -> int:
    step = newest(directory)
    if step is None:
        raise BadInput(f"{directory}: no checkpoints yet")
    return step


def params_shapes(objective):
    """Parameters do not depend on the size of the batch they are initialised with."""
    return jax.eval_shape(objective.init, jax.random.key(0), batch.shapes(1, 8, 1))


class Reader:
    """Reads parameters from a checkpoint part by part (the embeddings, a block), and keeps the last part it has read:
    Orbax looks at all names of a checkpoint for whatever it reads."""

    def __init__(self, directory: Path, shapes):
        self.directory, self.shapes = directory, shapes
        self.part, self.arrays = None, None

    def read(self, keys: list[str]) -> np.ndarray:
        part = keys[:2]
        if part != self.part:
            self.part = self.arrays = None  # not two of them at a time
            self.arrays, self.part = self.read_part(part), part
        return functools.reduce(operator.getitem, keys, self.arrays)

    def read_part(self, keys: list[str]):
        tree = functools.reduce(operator.getitem, keys, self.shapes)
        kinds = jax.tree.map(lambda _: ocp.RestoreArgs(restore_type=np.ndarray), tree)
        for key in reversed(keys):
            tree, kinds = {key: tree}, {key: kinds}
        args = ocp.args.PyTreeRestore(item=tree, restore_args=kinds, partial_restore=True)
        with ocp.Checkpointer(ocp.PyTreeCheckpointHandler()) as reader:
            return reader.restore(self.directory, args=args)


class Stored:
    """A parameter in a checkpoint: np.asarray reads it."""

    def __init__(self, reader: Reader, path: tuple, leaf: jax.ShapeDtypeStruct):
        self.reader, self.keys = reader, [key.key for key in path]
        self.shape, self.dtype, self.size = leaf.shape, leaf.dtype, leaf.size

    def __array__(self, dtype=None, copy=None) -> np.ndarray:
        return self.reader.read(self.keys).astype(dtype or self.dtype, copy=bool(copy))


def stored_params(directory: Path, objective):
    """(step, params) like restore_params, but read from the disk when they are used: for what takes them in order, one
    by one, and has no memory for all."""
    step, shapes = newest_or_refuse(directory), params_shapes(objective)
    reader = Reader(Path(directory).absolute() / str(step) / "params", shapes)
    return step, jax.tree.map_with_path(functools.partial(Stored, reader), shapes)
