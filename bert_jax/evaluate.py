"""A whole split, in equal steps; padded rows weigh nothing."""

from functools import partial

import jax

from bert_jax import step
from bert_jax.parallel import mesh as meshes
from bert_jax.runs import metrics


def lower_step(objective, mesh, params_shapes, batch_shapes):
    """(params, batch) -> (metrics, terms), to be compiled."""
    function = jax.jit(
        partial(step.evaluate, objective=objective), out_shardings=meshes.replicated(mesh)
    )
    return function.lower(params_shapes, batch_shapes)


def over(evaluate_step, params, batches, stopped=lambda: False) -> dict[str, float] | None:
    """Means over all batches; `loss` is that of all rows as one batch. None where `stopped` says so after a batch."""
    total = None
    for batch in batches:
        # At most two at a time: a signal is heard soon, and batches do not pile up.
        jax.block_until_ready(total)
        part = evaluate_step(params, batch)
        if stopped():
            return None
        total = part if total is None else metrics.add(total, part)
    values, terms = map(metrics.means, total)
    return {"loss": sum(terms.values()), **values}


def batch_size(config, phase, mesh) -> int:
    """Rows at a time: what the config says, or those of a micro-batch, rounded up to the devices."""
    devices = meshes.axis_size(mesh, meshes.ROWS)
    parts = meshes.micro_batches(mesh, phase.batch, config.train)
    rows = config.evaluate.batch or -(-phase.batch // parts)
    return -(-rows // devices) * devices


class Heldout:
    """Global batches of the held-out rows of a phase, the same at every iteration."""

    def __init__(self, feed, config, phase, mesh):
        self.mesh, self.batch = mesh, batch_size(config, phase, mesh)
        self.positions = meshes.host_rows(mesh, self.batch)
        self.local = feed.heldout(phase, self.batch, self.positions)

    def __iter__(self):
        for arrays in self.local:
            yield meshes.to_devices(self.mesh, arrays, self.positions, self.batch)
