"""From a config to compiled programs: shapes, then places, then arrays."""

from functools import partial
from typing import Any, NamedTuple

import jax

from bert_jax import (
    batch,
    evaluate,
    fingerprint,
    guard,
    optimizer,
    schedule,
    sharding,
    step,
    stored,
)
from bert_jax import config as configs
from bert_jax.objectives import base


class Trainer(NamedTuple):
    """What the loop calls, and where its arrays lie."""

    mesh: Any
    rate: Any  # step -> learning rate
    shapes: step.State
    places: step.State
    initialize: Any  # () -> state
    train: dict  # {phase: (state, batch) -> (state, metrics, verdict)}
    evaluate: dict  # {phase: (params, batch) -> (metrics, terms)}
    fingerprint: Any  # {item: tree} -> what fingerprint.read makes of it


def make_mesh(config, phases: list[configs.Phase]) -> jax.sharding.Mesh:
    """The mesh of a config, over which its model and the batches of these phases divide; raises BadInput."""
    mesh = sharding.make_mesh(config.mesh)
    sharding.check_model(mesh, config.model)
    for phase in phases:
        count = sharding.micro_batches(mesh, phase.batch, config.train)
        sharding.check_rows(mesh, phase.batch, count, f"phases.{phase.name}.batch")
    return mesh


def build(config, mesh, vocabulary: base.Vocabulary) -> Trainer:
    """Compiles every phase before the first step, so that nothing can fail to compile days later."""
    objective = base.make(config, vocabulary)
    total = configs.total_steps(config)
    peak, warmup = config.optimizer.learning_rate, config.schedule.warmup
    rate = schedule.make(config.schedule.name, peak, warmup, total)
    update = optimizer.make(config.optimizer, rate)
    # Parameters do not depend on the rows they are initialised with.
    example = batch.synthetic(1, 8, 1, vocabulary.size)
    initialize = partial(step.init, objective, update, config.seed, example)
    shapes = jax.eval_shape(initialize)
    places = sharding.state(shapes, mesh)
    with jax.set_mesh(mesh):
        train, evaluators = compile_phases(config, mesh, objective, update, shapes, places)
        prints = fingerprint.compile(mesh, stored.items(shapes), stored.items(places))
    initialize = jax.jit(initialize, out_shardings=places)
    return Trainer(mesh, rate, shapes, places, initialize, train, evaluators, prints)


def compile_phases(config, mesh, objective, update, shapes, places) -> tuple[dict, dict]:
    train = partial(
        step.train,
        objective=objective,
        optimizer=update,
        seed=config.seed,
        summed=sharding.summed(mesh, config.gradient_dtype),
        judge=partial(
            guard.judge,
            window=config.guard.window,
            spike=config.guard.spike,
            skip_spikes=config.guard.skip_spikes,
        ),
    )
    everywhere = sharding.replicated(mesh)
    results = places, everywhere, everywhere
    state = sharding.placed(shapes, places)
    programs, evaluators = {}, {}
    for phase in configs.phases(config):
        count = sharding.micro_batches(mesh, phase.batch, config.train)
        function = partial(train, micro_batches=count)
        function = jax.jit(function, donate_argnums=0, out_shardings=results)
        rows = batch_shapes(mesh, phase, phase.batch, phase.sequences)
        programs[phase.name] = function.lower(state, rows).compile()
        # Held-out rows are never packed, see stream.Heldout.
        rows = batch_shapes(mesh, phase, evaluate.batch_size(config, phase, mesh), sequences=1)
        evaluators[phase.name] = evaluate.compile_step(objective, mesh, state.params, rows)
    return programs, evaluators


def batch_shapes(mesh, phase, rows: int, sequences: int) -> dict:
    shapes = batch.shapes(rows, phase.length, phase.predictions, sequences)
    return sharding.placed(shapes, {name: sharding.rows(mesh) for name in shapes})
