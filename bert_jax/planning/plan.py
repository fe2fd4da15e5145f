"""What a run needs, takes and costs on a TPU slice that is not here: its training steps are compiled for it."""

import time
from collections.abc import Callable
from importlib.metadata import version

from ml_collections import ConfigDict

from bert_jax import build
from bert_jax.config import choose_phases
from bert_jax.data import batch_spec, download, store, store_sample
from bert_jax.data.vocabulary import expected_vocabulary
from bert_jax.errors import BadInput
from bert_jax.models import attention, bert
from bert_jax.parallel import chips
from bert_jax.planning import compilation, search, slices, topology
from bert_jax.planning.compilation import Job, RealTokens
from bert_jax.planning.estimate import estimate, total
from bert_jax.runs.out_of_memory import TooLarge
from bert_jax.runs.run_info import versions
from bert_jax.storage import remote

ALL = "all"  # kinds of chips


def plan(
    config: ConfigDict, name: str, price: float | None, phase: str | None, tell: Callable
) -> dict:
    """What DESIGN promises of `plan --json`: of every phase, or of one, on the slice of this name.

    price: of a chip for an hour. Of a phase that does not fit: `fits`, false, `bytes_per_chip`, `reason` and `advice`;
    then nothing is there of hours and cost. Raises BadInput before anything is compiled.
    """
    one = topology.find(name)
    job = prepare(config, phase, tell)
    mesh = compilation.make_mesh(job, one)
    phases = {part.name: plan_phase(job, one, mesh, part) for part in job.phases}
    design = build.design(job.config, mesh, job.vocabulary)
    is_whole = not any("reason" in values for values in phases.values())
    return {
        "topology": one.name,
        "accelerator_type": one.accelerator_type,
        "chips": one.chips,
        "hosts": len({device.process_index for device in mesh.devices.flat}),
        "mesh": dict(mesh.shape),
        "dtype": job.config.dtype,
        **bert.parameters(design.shapes.params, job.vocabulary.size),
        "memory_per_chip": one.chip.memory,
        "fits": all(values["fits"] for values in phases.values()),
        "phases": phases,
        "versions": compiled_by(),
        **(total(one, list(phases.values()), price) if is_whole else {}),
    }


def plan_phase(job: Job, one: topology.Slice, mesh, phase) -> dict:
    started = time.monotonic()
    try:
        step = compilation.compile_step(job, one, mesh, phase)
    except TooLarge as error:
        return search.does_not_fit(one, error) | {"advice": advise(job, one, phase)}
    return {
        **estimate(job, one, mesh, phase, step),
        "attention": attention.resolve(job.config, phase, mesh),
        "seconds_planning": time.monotonic() - started,
    }


def advise(job: Job, one: topology.Slice, phase) -> str:
    """What makes a step fit that does not, and what it is like then."""
    rows = search.attempts(job, one, phase, search.settings(job.config, one)[1:])
    found = next((row for row in rows if row["fits"]), None)
    if not found:
        return "no micro-batches, remat or fsdp that were tried make it fit"
    return (
        f"{search.options(found['settings'])} fits: {found['bytes_per_chip'] / chips.GIB:.2f} GiB a chip,"
        f" {found['seconds_per_step']:.3g} s a step"
    )


def check_fits(values: dict) -> None:
    """Raises BadInput where a phase of a plan does not fit."""
    reasons = [
        f"config.phases.{name} on {values['topology']}: {phase['reason']}; {phase['advice']}"
        for name, phase in values["phases"].items()
        if "reason" in phase
    ]
    if reasons:
        raise BadInput("; ".join(reasons))


def plan_all(config, name: str, price: float | None, phase: str | None, tell) -> dict:
    """The slices of every kind of chip, or of the one of this name, by hours; see slices.py."""
    kinds = list(chips.CHIPS) if name == ALL else [name]
    found = slices.table(prepare(config, phase, tell), kinds, price)
    return found | {"versions": compiled_by()}


def plan_search(config, name: str, phase: str | None, tell) -> dict:
    """Ways to train on a slice, the fastest first; see search.py."""
    one = topology.find(name)
    job = prepare(config, phase, tell)
    compilation.make_mesh(job, one)  # raises what is wrong with the config as it is
    return {
        "topology": one.name,
        "memory_per_chip": one.chip.memory,
        "phases": {part.name: search.search(job, one, part) for part in job.phases},
        "versions": compiled_by(),
    }


def compiled_by() -> dict[str, str]:
    return versions() | {"libtpu": version("libtpu")}


def prepare(config: ConfigDict, phase: str | None, tell) -> Job:
    """Of all phases, or of one."""
    config = config.copy_and_resolve_references()
    if config.dtype == "auto":
        config.dtype = "bfloat16"
    chosen = choose_phases(config, phase)
    vocabulary = expected_vocabulary(config, tell)
    return Job(config, chosen, vocabulary, expected_real_tokens(config, chosen), tell)


def expected_real_tokens(config, phases: list) -> dict[str, RealTokens]:
    """By the name of a phase; of a sample of the store, where one is on this disk. Raises BadInput where it is
    damaged."""
    shares = {phase.name: RealTokens(1.0, "no store") for phase in phases}
    if remote.is_address(config.store) or not download.exists(config.store):
        return shares
    opened = store.open_store(config.store)
    for name in shares:
        rows = store_sample.survey_rows(opened, batch_spec.spec(config, name))
        shares[name] = RealTokens(rows.real_token_share, config.store)
    return shares
