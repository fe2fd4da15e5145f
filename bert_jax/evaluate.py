"""A whole split, in equal steps; padded rows weigh nothing."""

import math
from functools import partial
from pathlib import Path

import jax

from bert_jax import config as configs
from bert_jax import metrics, sharding, step, trained
from bert_jax.errors import BadInput
from bert_jax.feed import open_feed


def lower_step(objective, mesh, params_shapes, batch_shapes):
    """(params, batch) -> (metrics, terms), to be compiled."""
    function = jax.jit(
        partial(step.evaluate, objective=objective), out_shardings=sharding.replicated(mesh)
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
    devices = sharding.axis_size(mesh, sharding.ROWS)
    parts = sharding.micro_batches(mesh, phase.batch, config.train)
    rows = config.evaluate.batch or -(-phase.batch // parts)
    return -(-rows // devices) * devices


class Heldout:
    """Global batches of the held-out rows of a phase, the same at every iteration."""

    def __init__(self, feed, config, phase, mesh):
        self.mesh, self.batch = mesh, batch_size(config, phase, mesh)
        self.positions = sharding.host_rows(mesh, self.batch)
        self.local = feed.heldout(phase, self.batch, self.positions)

    def __iter__(self):
        for arrays in self.local:
            yield sharding.to_devices(self.mesh, arrays, self.positions, self.batch)


def mesh_for(config, overrides: list[str]):
    """The mesh of a run where it was asked for or fits the devices that are here; else one over all of them, on which
    parameters are split if they were."""
    keys = config.mesh.copy_and_resolve_references()
    try:
        mesh = sharding.make_mesh(keys)
    except BadInput:
        if any(override.startswith("mesh.") for override in overrides):
            raise
        fsdp = math.gcd(jax.device_count(), keys.fsdp * keys.tensor, config.model.width)
        keys.update(data=-1, fsdp=fsdp, tensor=1)
        mesh = sharding.make_mesh(keys)
    sharding.check_model(mesh, config.model)
    return mesh


def evaluate(directory: Path, overrides: list[str] = ()) -> dict:
    """Held-out numbers of a run's newest checkpoint, on rows like those of its last phase."""
    run = trained.open_run(directory, overrides)
    data = open_feed(run.config)
    trained.check_store(directory, run.facts, run.step, data)
    mesh = mesh_for(run.config, overrides)
    phase = configs.phases(run.config)[-1]
    places = sharding.parameters(run.params, mesh)
    params = jax.device_put(run.params, places)
    function = jax.jit(partial(step.evaluate, objective=run.objective))
    with jax.set_mesh(mesh):
        batches = Heldout(data, run.config, phase, mesh)
        values = over(function, params, batches)
    return {"step": run.step, "unigram_entropy": data.unigram_entropy, **values}
