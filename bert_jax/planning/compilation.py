"""Compiles a training step ahead of time for devices that are not attached, and reads the compiler's estimates.

Results are cached beside the compiled programs, so that a second plan takes seconds instead of minutes.
"""

import contextlib
import json
import os
from collections.abc import Callable
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import NamedTuple

import jax
from ml_collections import ConfigDict

from bert_jax import build
from bert_jax.config import of_phase
from bert_jax.errors import Unfinished, one_line
from bert_jax.parallel import cards, chips
from bert_jax.parallel import mesh as meshes
from bert_jax.planning import (
    compiler,
    custom_calls,
    gpu_operations,
    hlo,
    roofline,
    timeline,
)
from bert_jax.planning.topology import Target
from bert_jax.runs import jax_setup, out_of_memory
from bert_jax.runs.run_info import versions
from bert_jax.storage import atomic
from bert_jax.storage.checksums import json_digest
from bert_jax.tasks import base as tasks
from bert_jax.tokenizers.special_tokens import Vocabulary

FOLDER = "plans"
STEPS = 1000  # of each phase in a program that is compiled here
FEW = 3  # micro-batches of the program from which the estimates of more are computed
# The modules on which the cached estimates depend, beside the compiler's output.
MODULES = (
    hlo,
    timeline,
    custom_calls,
    gpu_operations,
    roofline,
    chips,
    cards,
    out_of_memory,
)


class Job(NamedTuple):
    """The training job to plan."""

    config: ConfigDict  # resolved as on the devices
    phases: list
    vocabulary: Vocabulary
    work: dict[str, dict]  # {phase: the values of plan.expected_work}
    log: Callable[[str], None]
    programs: dict  # {key: Step} of all that were compiled


class Step(NamedTuple):
    """The compiler's estimates of a training step, for one device."""

    memory: hlo.Memory
    events: list  # see timeline.py


class CompilerFailed(Unfinished):
    """The compiler crashed on a program or rejected it. Other programs may still compile."""


def make_mesh(job: Job, target: Target) -> jax.sharding.Mesh:
    """Returns the mesh over the devices of a target. Raises BadInput if a size is not divisible by its axes."""
    return build.make_mesh(job.config, job.phases, target.devices())


def compile_step(job: Job, target: Target, mesh, phase) -> Step:
    """Returns the compiled step of a phase on a target.

    Raises TooLarge if the step does not fit in a device's memory, and CompilerFailed if the compiler itself fails.
    """
    step = extend(job, target, mesh, phase) or compile_phase(job, target, mesh, phase)
    used = step.memory.total
    if used > target.memory and not target.has_memory_errors:
        raise out_of_memory.TooLarge(used, target.memory)
    return step


def extend(job: Job, target: Target, mesh, phase) -> Step | None:
    """Returns the step of a phase with more than FEW micro-batches, from the compiled step with FEW of the same size.

    At its end the loop runs for the others, and it holds more of the batch, twice: a copy has the order of the loop.
    Returns None for fewer micro-batches, if FEW would have another size, or if none or several loops run FEW times.
    """
    train = job.config.train
    count = meshes.micro_batches(mesh, phase, train)
    few = phase._replace(batch=phase.batch // count * FEW)
    if count <= FEW or meshes.micro_batches(mesh, few, train) != FEW:
        return None
    step = compile_phase(job, target, mesh, few)
    loops = [event[2] for event in step.events if event[:2] == ["loop", FEW]]
    if len(loops) != 1:
        return None
    rows = (phase.batch - few.batch) // meshes.axis_size(mesh, meshes.ROWS)
    arrays = tasks.make(job.config).shapes(phase, rows).values()
    size = sum(array.size * array.dtype.itemsize for array in arrays)
    arguments, temporaries, program, total = step.memory
    memory = hlo.Memory(
        arguments + size,
        temporaries + size,
        program,
        total + 2 * size,
    )
    return Step(memory, [*step.events, ["loop", count - FEW, *loops]])


def compile_phase(job: Job, target: Target, mesh, phase) -> Step:
    """Returns the compiled step of a phase: that of an earlier one with the same program, or one from the cache."""

    def compile_program() -> Step:
        job.log(f"plan: compiling phase {phase.name} for {target.name}, for up to minutes")
        return compile_in_subprocess(job, target, phase)

    # The program depends on these values alone. They are compared first, because lowering takes seconds.
    shapes = tasks.make(job.config).shapes(phase, phase.batch)
    key = str((target.name, shapes, of_phase(job.config, phase)))
    if key not in job.programs:
        text = lower(job, mesh, phase).as_text()
        job.programs[key] = read_or_compile(job, text, mesh, compile_program)
    return job.programs[key]


def read_or_compile(job: Job, text: str, mesh, compile_program: Callable[[], Step]) -> Step:
    """Returns the step of a lowered program from the cache, or compiles it and stores the result.

    text: the lowered program. A program that does not fit is cached, too: it raises TooLarge again.
    """
    directory = jax_setup.cache_directory(job.config)
    if not directory:
        return compile_program()
    entry = directory / FOLDER / f"{digest(text, mesh)}.json"
    try:
        # [memory, events], or [null, [used, available]] for a step that does not fit.
        memory, content = json.loads(entry.read_bytes())
        result = Step(hlo.Memory(*memory), content) if memory else out_of_memory.TooLarge(*content)
    except (OSError, ValueError, TypeError):  # missing or damaged
        try:
            result = compile_program()
        except out_of_memory.TooLarge as error:
            result = error
        cached = result if isinstance(result, Step) else (None, result.args)
        with contextlib.suppress(OSError):  # the next plan compiles it again
            entry.parent.mkdir(parents=True, exist_ok=True)
            atomic.write(entry, json.dumps(cached), sync=False)
    if isinstance(result, Exception):
        raise result
    return result


def digest(text: str, mesh) -> str:
    """Returns the cache key: a hash of all that affects how a program is compiled and how the result is parsed."""
    flags = [os.environ.get(name, "") for name in ("XLA_FLAGS", "LIBTPU_INIT_ARGS")]
    parsers = [Path(module.__file__).read_text() for module in MODULES]
    devices = [
        (device.device_kind, getattr(device, "coords", device.id)) for device in mesh.devices.flat
    ]
    inputs = [text, *flags, *parsers, versions(), str(devices), str(dict(mesh.shape))]
    return json_digest(inputs)


def lower(job: Job, mesh, phase):
    """Returns the lowered training step of a phase.

    The numbers of steps, which are constants of the learning rate's schedule, are fixed ones, so that the program and
    its cached estimates are the same for all.
    """
    config = job.config.copy_and_resolve_references()
    for keys in config.phases.values():
        keys.steps = STEPS
    for keys in (config.schedule, *config.phases.values()):
        keys.update(warmup=STEPS // 10, decay=STEPS // 10)
    design = build.design(config, mesh, job.vocabulary)
    with jax.set_mesh(mesh), jax_setup.precise(job.config):
        return build.lower_train(config, design, phase)


def compile_in_subprocess(job: Job, target: Target, phase) -> Step:
    """Compiles a step in the compiler process. Raises CompilerFailed if that process crashes."""
    try:
        pool = compiler.pool()
        return pool.submit(
            compile_here, job._replace(log=None, programs={}), target, phase
        ).result()
    except BrokenProcessPool:
        compiler.pool.cache_clear()  # the next step starts a new process
        raise CompilerFailed(f"the compiler crashed on phase {phase.name}") from None


def compile_here(job: Job, target: Target, phase) -> Step:
    """Compiles a step in this process."""
    mesh = make_mesh(job, target)
    return compile_lowered(lower(job, mesh, phase), mesh)


def compile_lowered(lowered, mesh) -> Step:
    """Compiles a lowered step and reads its estimates. Raises TooLarge or CompilerFailed."""
    try:
        compiled = lowered.compile()
    except jax.errors.JaxRuntimeError as error:
        reason = out_of_memory.too_large(error)
        raise reason or CompilerFailed(f"the compiler failed: {one_line(error)}") from None
    text = compiled.as_text()
    memory = hlo.memory(compiled)
    size = gpu_operations.largest_workspace(text)
    memory = memory._replace(temporaries=memory.temporaries + size, total=memory.total + size)
    return Step(memory, timeline.read(text, mesh))
