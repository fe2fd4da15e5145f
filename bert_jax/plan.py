"""What a run needs, takes and costs on a TPU slice that is not here: its training steps are compiled for it."""

import time
from collections.abc import Callable

from ml_collections import ConfigDict

from bert_jax import build, metrics, topology
from bert_jax.benchmark import choose_phases, likely_vocabulary
from bert_jax.errors import BadInput
from bert_jax.facts import step_flops, versions
from bert_jax.models import attention
from bert_jax.planning import fit
from bert_jax.planning.compiled import TooLarge, compile_step
from bert_jax.planning.estimate import estimate, total


def plan(
    config: ConfigDict,
    name: str,
    price: float | None = None,
    phase: str | None = None,
    tell: Callable[[str], None] = print,
) -> dict:
    """What DESIGN promises of `plan --json`: of every phase, or of one, on the slice of this name.

    price: of a chip for an hour. Raises BadInput, what is known before compiling before that.
    """
    one = topology.find(name)
    config = for_tpu(config)
    chosen = choose_phases(config, phase)
    mesh = build.make_mesh(config, chosen, topology.devices(one))
    vocabulary = likely_vocabulary(config, tell)
    design = build.design(config, mesh, vocabulary)
    phases = {}
    for part in chosen:
        started = time.monotonic()
        try:
            step = compile_step(config, design, part, tell)
        except TooLarge as error:
            advice = advise(config, one, part, vocabulary, error, tell)
            raise BadInput(f"config.phases.{part.name} on {one.name}: {error}; {advice}") from None
        flops = step_flops(config, vocabulary.size, part)
        phases[part.name] = estimate(one, mesh, part, step, flops)
        phases[part.name]["attention"] = attention.resolve(config, part, mesh)
        phases[part.name]["seconds_planning"] = time.monotonic() - started
    return {
        "topology": one.name,
        "accelerator_type": one.accelerator_type,
        "chips": one.chips,
        "hosts": len({device.process_index for device in mesh.devices.flat}),
        "mesh": dict(mesh.shape),
        "dtype": config.dtype,
        "parameters": metrics.count(design.shapes.params, vocabulary.size),
        "memory_per_chip": one.chip.memory,
        "phases": phases,
        "versions": versions(),
        **total(one, list(phases.values()), price),
    }


def advise(config, one: topology.Slice, phase, vocabulary, failed, tell) -> str:
    """What makes a step fit that does not, and what it is like then."""
    found = fit.find(config, topology.devices(one), phase, vocabulary, failed, tell)
    if found is None:
        return (
            "nothing that was tried makes it fit: rows_per_chip=1, remat=full, fsdp over all chips"
        )
    flops = step_flops(config, vocabulary.size, phase)
    values = estimate(one, found.mesh, phase, found.step, flops)
    return (
        f"{fit.describe(found.changes)} fits: {values['bytes_per_chip'] / topology.GIB:.2f} GiB a chip,"
        f" {values['seconds_per_step']:.3g} s a step"
    )


def for_tpu(config: ConfigDict) -> ConfigDict:
    """The config as a TPU would resolve it."""
    config = config.copy_and_resolve_references()
    if config.dtype == "auto":
        config.dtype = "bfloat16"
    return config
