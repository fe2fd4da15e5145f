"""Evaluates a model on whole splits, in batches of one size: means on the device, scores on the host."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import numpy as np

from bert_jax import step
from bert_jax.objectives import metrics
from bert_jax.parallel import mesh as meshes


class Programs(NamedTuple):
    """The programs that evaluate batches of one shape."""

    metrics: Callable  # (params, batch) -> (metrics, terms), see `step.evaluate`
    # (params, batch) -> the objective's outputs, of all rows in every process; None if the task is not scored
    outputs: Callable | None = None


def programs(objective, mesh) -> Programs:
    """Returns the jitted programs of an objective, not yet compiled."""
    jit = partial(jax.jit, out_shardings=meshes.replicated(mesh))
    return Programs(jit(partial(step.evaluate, objective=objective)), jit(objective.outputs))


def measure(programs: Programs, params, batches, stopped=lambda: False) -> dict | None:
    """Returns {metric: number} of a split: the means over its rows and the task's scores; None if `stopped()`."""
    means = mean(programs.metrics, params, batches, stopped)
    return None if means is None else means | score(programs, params, batches)


def mean(evaluate_step, params, batches, stopped=lambda: False) -> dict[str, float] | None:
    """Returns {metric: mean over all batches}; `loss` is the loss of all rows as one batch.

    Returns None if `stopped()` is true after a batch.
    """
    total = None
    for batch in batches:
        # At most two batches are in flight, so that a signal is handled soon and batches do not fill the memory.
        jax.block_until_ready(total)
        part = evaluate_step(params, batch)
        if stopped():
            return None
        total = part if total is None else metrics.add(total, part)
    values, terms = map(metrics.means, total)
    return {"loss": sum(terms.values()), **values}


def score(programs: Programs, params, batches: "Batches") -> dict[str, float]:
    """Returns the task's scores of a split, computed on the host from the outputs of all its rows."""
    if not batches.score:
        return {}
    parts = [jax.device_get(programs.outputs(params, batch)) for batch in batches]
    outputs = jax.tree.map(lambda *arrays: np.concatenate(arrays)[: batches.local.rows], *parts)
    return batches.score(outputs, batches.local.chosen())


def batch_size(config, phase, mesh) -> int:
    """Returns the rows of a batch that is evaluated: `evaluate.batch`, or the rows of a micro-batch, rounded up to a
    multiple of the number of row shards."""
    shards = meshes.axis_size(mesh, meshes.ROWS)
    parts = meshes.micro_batches(mesh, phase.batch, config.train)
    rows = config.evaluate.batch or -(-phase.batch // parts)
    return -(-rows // shards) * shards


class Batches:
    """The global batches of a split in a phase; every iteration yields the same batches."""

    def __init__(self, feed, config, phase, split: str, mesh):
        self.mesh, self.batch = mesh, batch_size(config, phase, mesh)
        self.positions = meshes.host_rows(mesh, self.batch)
        self.local = feed.evaluation(phase, split, self.batch, self.positions)
        self.score = feed.score and partial(feed.score, split)

    def __iter__(self):
        for arrays in self.local:
            yield meshes.to_devices(self.mesh, arrays, self.positions, self.batch)
