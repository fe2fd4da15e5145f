"""From a config to compiled programs: shapes, then shardings, then arrays."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np

from bert_jax import config as configs
from bert_jax import evaluate, optimizer, step, step_guard
from bert_jax.checkpoints import fingerprint, reader
from bert_jax.data import batch
from bert_jax.data.dataset import Dataset
from bert_jax.errors import BadInput
from bert_jax.layers import gpu
from bert_jax.models import base as models
from bert_jax.objectives import base
from bert_jax.optimizers.base import select_trained
from bert_jax.parallel import init_on_host
from bert_jax.parallel import mesh as meshes
from bert_jax.runs import out_of_memory
from bert_jax.tasks import base as tasks
from bert_jax.tokenizers.special_tokens import Vocabulary
from bert_jax.tokenizers.training import DEFAULTS

COMPILERS = 2  # programs compiled concurrently; each compilation takes memory


class Trainer(NamedTuple):
    """The compiled programs that the loop calls, and the shapes and shardings of the state."""

    mesh: Any
    rate: Any  # step -> learning rate, by NumPy
    shapes: step.State
    shardings: step.State
    initialize: Any  # () -> state
    train: dict  # {phase: (state, batch) -> (state, metrics, verdict)}
    evaluate: dict  # {phase: (params, batch) -> (metrics, terms, outputs, guesses)}
    fingerprint: Any  # the program of fingerprint.lower: {item: tree} -> (sums, counts)
    flops: dict  # {phase: {length: FLOPs of a training step}}
    compile_seconds: float  # wall time until all programs were compiled


class Design(NamedTuple):
    """The parts of a run that exist before a program is compiled."""

    mesh: Any
    vocabulary: Vocabulary
    dataset: Dataset  # without a store
    optimizer: Any
    rate: Any  # step -> learning rate, by NumPy
    initialize: Any  # () -> state
    shapes: step.State
    shardings: step.State


def make_mesh(config, phases: list[configs.Phase], devices=None) -> jax.sharding.Mesh:
    """Returns the mesh of a config. Raises BadInput if the task does not make what the objective reads, if the model or
    a phase's batch is not divisible by the mesh, or if the configured attention cannot run on it."""
    # The names of the arrays that an objective reads do not depend on its vocabulary, which is known from the store.
    objective = base.make(config, Vocabulary(config.tokenizer.size, **DEFAULTS.special_ids))
    base.check_arrays(config, objective, tasks.make(config).shapes(phases[0], 1))
    mesh = meshes.make_mesh(config, devices)
    for phase in phases:
        tasks.attention(config, phase, mesh)
        count = meshes.micro_batches(mesh, phase, config.train)
        shards = meshes.axis_size(mesh, meshes.ROWS)
        if phase.batch % (shards * count):
            hint = f"not divisible by {shards} row shards x {count} micro-batches"
            raise BadInput(f"config.phases.{phase.name}.batch={phase.batch}: {hint}")
    return mesh


def design(config, mesh, vocabulary: Vocabulary) -> Design:
    """Returns the objective, optimizer, shapes and shardings of a config; compiles nothing."""
    objective = base.make(config, vocabulary)
    dataset = tasks.make(config)
    phases = configs.phases(config)
    schedules = configs.schedules(config)
    peak = partial(optimizer.peak_of, schedules)
    update = optimizer.make(config, optimizer.rate_of(schedules), peak)
    # The initial parameters do not depend on the example batch.
    example = batch.zeros(dataset.shapes(phases[0], 1))
    initialize = partial(step.init, objective, update, config.seed, example)
    shapes = jax.eval_shape(initialize)
    shardings = meshes.state(shapes, mesh, models.shardings(config))
    return Design(
        mesh,
        vocabulary,
        dataset,
        update,
        optimizer.rate_of(schedules, np),
        initialize,
        shapes,
        shardings,
    )


def build(config, mesh, vocabulary: Vocabulary, init_state: bool = False) -> Trainer:
    """Compiles the programs of all phases before the first step, so that no compilation fails in the middle of a run.

    init_state: computes the initial state during compilation; `initialize` then returns it, and may be called once.

    Raises BadInput if a program exceeds a device's memory.
    """
    started = time.monotonic()
    parts = design(config, mesh, vocabulary)

    def of_lengths(make: Callable, split: int = 0) -> dict:
        """Returns {phase: {length: make(a phase with rows of this length)}} of the batches of a split."""
        results = {}
        for phase in configs.phases(config):
            sizes = parts.dataset.lengths(phase, parts.dataset.splits[split])
            results[phase.name] = {size: make(phase._replace(length=size)) for size in sizes}
        return results

    def step_flops(phase) -> float:
        return tasks.step_flops(config, phase, vocabulary, parts.shapes.params)

    flops = of_lengths(step_flops)
    with jax.set_mesh(mesh), ThreadPoolExecutor(COMPILERS) as compilers:
        # XLA compiles, or reads its cache, without holding the GIL, so Python lowers the next program at the same time.
        def compiled(lowered, what: str):
            return compilers.submit(compile_program, lowered, what)

        def initialized():
            with out_of_memory.explain("initial state"):
                return initialize.result()()

        initialize = compiled(lower_initialize(parts), "initial state")
        initial_state = compilers.submit(initialized) if init_state else None

        def programs(lower: Callable, what: str, split: int) -> dict:
            def compile_phase(phase):
                return compiled(lower(config, parts, phase), f"phase {phase.name}, {what}")

            return of_lengths(compile_phase, split)

        train = programs(lower_train, "a step", 0)
        fingerprints = compiled(
            fingerprint.lower(mesh, reader.items(parts.shapes), reader.items(parts.shardings)),
            "fingerprints of the state",
        )
        evaluators = programs(lower_evaluate, "evaluation", 1)
    if init_state:
        initial_state.result()  # raises its error before anything is written
    return Trainer(
        mesh,
        parts.rate,
        parts.shapes,
        parts.shardings,
        initial_state.result if init_state else initialize.result(),
        by_phase(train),
        by_phase(evaluators),
        fingerprints.result(),
        flops,
        time.monotonic() - started,
    )


def by_phase(futures: dict) -> dict[str, Callable]:
    """Returns {phase: its only program, or a function that calls that of its batch's length}.

    futures: {phase: {length: future of a program}}.
    """

    def choose(futures: dict) -> Callable:
        programs = {length: future.result() for length, future in futures.items()}
        if len(programs) == 1:
            return next(iter(programs.values()))
        return lambda state, rows: programs[rows["tokens"].shape[1]](state, rows)

    return {phase: choose(by_length) for phase, by_length in futures.items()}


def start_from(trainer: Trainer, arrays: dict, moments: dict) -> Trainer:
    """Returns the trainer with an `initialize` that puts arrays into the initial state.

    arrays: {path of a parameter: array on the host}; moved out of the dict, so that their memory is free once they are
        on the devices. Of one with fewer rows, the others stay as they are.
    moments: the same of the optimizer's state.
    """

    def fill(tree, arrays: dict):
        def take(path, leaf):
            array = arrays.pop(meshes.path_name(path), None)
            if array is None:
                return leaf
            if array.shape == leaf.shape:
                return init_on_host.put(array.astype(leaf.dtype), leaf.sharding)
            set_rows = jax.jit(
                lambda leaf, rows: leaf.at[: len(rows)].set(rows), out_shardings=leaf.sharding
            )
            return set_rows(leaf, array)

        return jax.tree.map_with_path(take, tree)

    def initialize():
        state = trainer.initialize()
        params = fill(state.params, arrays)
        return state._replace(params=params, opt_state=fill(state.opt_state, moments))

    return trainer._replace(initialize=initialize)


def compile_program(lowered, what: str):
    """Compiles a lowered program. Raises BadInput, which names the program `what`, if it exceeds a device's memory."""
    with out_of_memory.explain(what):
        return lowered.compile()


def lower_initialize(design: Design):
    """Lowers () -> state. To be called within `jax.set_mesh`."""
    return init_on_host.lower(design.initialize, design.mesh, design.shardings)


def lower_train(config, design: Design, phase):
    """Lowers (state, batch) -> (state, metrics, verdict) of a phase. To be called within `jax.set_mesh`."""
    mesh = design.mesh
    everywhere = meshes.replicated(mesh)
    apply_if = step_guard.apply_if
    if gpu.is_target():
        apply_if = step_guard.apply_if_on_gpu
    options = step.StepOptions(
        micro_batches=meshes.micro_batches(mesh, phase, config.train),
        summed=meshes.summed(mesh, config.gradient_dtype),
        select=partial(select_trained, config),
        judge=partial(step_guard.judge, **config.guard),
        apply_if=apply_if,
    )
    function = partial(
        step.train,
        objective=tasks.make_objective(config, phase, design.vocabulary),
        optimizer=design.optimizer,
        seed=config.seed,
        options=options,
    )
    results = design.shardings, everywhere, everywhere
    function = jax.jit(function, donate_argnums=0, out_shardings=results)
    state = meshes.with_shardings(design.shapes, design.shardings)
    return function.lower(state, batch_shapes(design, phase, phase.batch))


def lower_evaluate(config, design: Design, phase):
    """Lowers (params, batch) -> (metrics, terms, outputs, guesses) of a phase. To be called within `jax.set_mesh`."""
    rows = evaluate.batch_size(config, phase, design.mesh)
    params = meshes.with_shardings(design.shapes.params, design.shardings.params)
    objective = tasks.make_objective(config, phase, design.vocabulary)
    is_scored = bool(design.dataset.score)
    program = evaluate.program(objective, design.mesh, is_scored, config.evaluate.samples)
    return program.lower(params, batch_shapes(design, phase, rows))


def batch_shapes(design: Design, phase, rows: int) -> dict:
    """Returns {name: ShapeDtypeStruct with its sharding} of a global batch."""
    shapes = design.dataset.shapes(phase, rows)
    return meshes.with_shardings(shapes, {name: meshes.rows(design.mesh) for name in shapes})
