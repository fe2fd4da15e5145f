"""Which setting makes a step fit that does not: found by compiling with it, few times.

First fewer rows at once, whose number follows from what the step needed; then what the backward pass computes again;
then parameters and optimizer state split over more chips.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import numpy as np
from ml_collections import ConfigDict

from bert_jax import build
from bert_jax.errors import BadInput
from bert_jax.parallel import mesh as meshes
from bert_jax.planning.changes import changed, options
from bert_jax.planning.compilation import Failed, Step, TooLarge, attempt

TRIES = 3  # compiles for the number of rows, a setting of the rest


class Found(NamedTuple):
    changes: dict[str, object]  # keys of the config and their values
    mesh: jax.sharding.Mesh
    step: Step


def find(
    config: ConfigDict,
    devices: list,
    phase,
    vocabulary,
    failed: TooLarge,
    tell: Callable[[str], None],
) -> Found | list[str]:
    """Of a step that has failed to fit; where nothing does, the last that was tried of each kind of setting."""
    tried = {}
    for changes in settings(config, len(devices)):
        try:
            found = fewer_rows(config, changes, devices, phase, vocabulary, failed, tell)
        except BadInput:  # such a mesh does not fit the devices, the model, or the rows
            continue
        except Failed as error:
            found = f"{options(changes)} ({error})".strip()
        if isinstance(found, Found):
            return found
        if found:
            tried[tuple(changes)] = found
    return [*tried.values()]


def settings(config: ConfigDict, devices: int) -> list[dict[str, object]]:
    """Changes to try, cheap ones first: all but the number of rows at once."""
    levels = ("none", "attention", "full")
    remats = levels[levels.index(config.train.remat) + 1 :]
    sizes = (config.mesh.fsdp * 2**power for power in range(1, 20))
    shapes = [{"mesh.fsdp": size, "mesh.data": -1} for size in sizes if size <= devices]
    split = [mesh | {"train.remat": remats[-1]} for mesh in shapes[-1:] if remats]
    return [{}, *({"train.remat": remat} for remat in remats), *shapes, *split]


def fewer_rows(config, changes, devices, phase, vocabulary, failed, tell) -> Found | str:
    """With these changes and as many rows at once as fit, a divisor of a chip's rows; else the last that was tried."""
    trial = changed(config, changes)
    mesh = build.make_mesh(trial, [phase], devices)
    rows = phase.batch // meshes.axis_size(mesh, meshes.ROWS)
    at_once = rows // meshes.micro_batches(mesh, phase.batch, trial.train)
    design = build.design(trial, mesh, vocabulary)
    held = state_bytes(design.shapes, design.places)
    if held > failed.there:
        return f"{options(changes)} (its state alone is too large)" if changes else ""
    held += state_bytes(design.shapes.params, design.places.params)  # gradients
    result = failed if not changes else attempt(trial, design, phase, tell)
    for _ in range(TRIES):
        if isinstance(result, Step):
            return Found(changes, mesh, result)
        if at_once == 1:
            return options(changes)
        # What is not the state grows with the rows, about.
        a_row = max(result.used - held, 1) / at_once
        most = min(at_once - 1, max(1, (result.there - held) / a_row))
        at_once = max(n for n in range(1, rows + 1) if rows % n == 0 and n <= most)
        changes = changes | {"train.rows_per_chip": at_once}
        if config.train.micro_batches > 1:
            changes |= {"train.micro_batches": 1}  # of the two, one is set
        tell(f"plan: does not fit; trying {options(changes)}")
        result = attempt(changed(config, changes), design, phase, tell)
    return Found(changes, mesh, result) if isinstance(result, Step) else options(changes)


def state_bytes(shapes, places) -> int:
    """Of a device."""
    leaves = zip(jax.tree.leaves(shapes), jax.tree.leaves(places), strict=True)
    return sum(
        int(np.prod(place.shard_shape(leaf.shape))) * leaf.dtype.itemsize for leaf, place in leaves
    )
