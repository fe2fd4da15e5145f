"""Evaluates a model on held-out rows, in batches of one size; padding rows have weight 0."""

from functools import partial

import jax

from bert_jax import step
from bert_jax.objectives import metrics
from bert_jax.parallel import mesh as meshes


def lower_step(objective, mesh, params_shapes, batch_shapes):
    """Lowers (params, batch) -> (metrics, terms), see `step.evaluate`, for compilation."""
    function = jax.jit(
        partial(step.evaluate, objective=objective), out_shardings=meshes.replicated(mesh)
    )
    return function.lower(params_shapes, batch_shapes)


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


def batch_size(config, phase, mesh) -> int:
    """Returns the rows of a held-out batch: `evaluate.batch`, or the rows of a micro-batch, rounded up to a multiple of
    the number of row shards."""
    shards = meshes.axis_size(mesh, meshes.ROWS)
    parts = meshes.micro_batches(mesh, phase.batch, config.train)
    rows = config.evaluate.batch or -(-phase.batch // parts)
    return -(-rows // shards) * shards


class Heldout:
    """The global batches of a phase's held-out rows; every iteration yields the same batches."""

    def __init__(self, feed, config, phase, mesh):
        self.mesh, self.batch = mesh, batch_size(config, phase, mesh)
        self.positions = meshes.host_rows(mesh, self.batch)
        self.local = feed.heldout(phase, self.batch, self.positions)

    def __iter__(self):
        for arrays in self.local:
            yield meshes.to_devices(self.mesh, arrays, self.positions, self.batch)
