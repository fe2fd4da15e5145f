"""Plans a run on a TPU slice or on GPUs without one: compiles its steps, and estimates memory, time and cost."""

from collections.abc import Callable

import jax
from ml_collections import ConfigDict

from bert_jax import build
from bert_jax.config import MAX_STEPS, choose_phases
from bert_jax.data.store import SPLITS, Store
from bert_jax.data.vocabulary import expected_vocabulary
from bert_jax.errors import BadInput
from bert_jax.models import base as models
from bert_jax.objectives import base
from bert_jax.parallel import chips
from bert_jax.planning import compilation, search, slices, topology, tpus
from bert_jax.planning.compilation import Job
from bert_jax.planning.estimate import estimate, tokens_of, total
from bert_jax.planning.topology import Target
from bert_jax.runs import jax_setup
from bert_jax.runs.out_of_memory import TooLarge
from bert_jax.runs.run_info import versions
from bert_jax.tasks import base as tasks

ALL = "all"  # the --topology of a table over all kinds of chips


def plan(job: Job, name: str, price: float | None) -> dict:
    """Returns the values of `plan --json`: every phase of the job, on the slice or GPUs of this name.

    price: of a chip-hour. A phase that does not fit has `fits` (false), `bytes_per_chip`, `reason`, `advice`, and if
    other settings fit, `suggestion`, their row, which the totals have instead. There are no totals without one, or
    unless all phases have the same settings, which hold for a whole run. Raises BadInput before anything is compiled.
    """
    target = topology.find(name)
    mesh = compilation.make_mesh(job, target)
    phases = {part.name: plan_phase(job, target, mesh, part) for part in job.phases}
    design = build.design(job.config, mesh, job.vocabulary)
    values = {
        "topology": target.name,
        "accelerator_type": target.accelerator_type,
        "chips": target.chips,
        "hosts": len({device.process_index for device in mesh.devices.flat}),
        "mesh": dict(mesh.shape),
        "dtype": job.config.dtype,
        **models.parameters(job.config, design.shapes.params, job.vocabulary.size),
        "memory_per_chip": target.memory,
        "fits": all(phase["fits"] for phase in phases.values()),
        "phases": phases,
        "sources": target.sources,
        "versions": versions(),
    }
    parts = [phase.get("suggestion", phase) for phase in phases.values()]
    settings = {str(part.get("settings")) for part in parts}
    if len(settings) == 1 and all("hours" in part for part in parts):
        values |= total(target, parts, price)
    return values


def plan_phase(job: Job, target: Target, mesh, phase) -> dict:
    """Returns the values of one phase."""
    try:
        step = compilation.compile_step(job, target, mesh, phase)
    except TooLarge as error:
        return search.does_not_fit(target, error) | advise(job, target, phase)
    return {
        **estimate(job, target, mesh, phase, step),
        "attention": tasks.attention(job.config, phase, mesh),
    }


def advise(job: Job, target: Target, phase) -> dict:
    """Returns `suggestion`, the row of the first settings that make a step fit, if any, and `advice`, its text."""
    changes = search.settings(job.config, target)[1:]
    for row in search.attempts(job, target, phase, changes):
        if row["fits"]:
            memory = f"{chips.gib(row['bytes_per_chip'])} GiB a chip"
            speed = f"{row['seconds_per_step']:.3g} s a step"
            advice = f"{search.options(row['settings'])} fits: {memory}, {speed}"
            return {"advice": advice, "suggestion": row}
    return {"advice": "no setting that was tried makes it fit"}


def check_fits(values: dict) -> None:
    """Raises BadInput if a phase of a plan does not fit."""
    reasons = [
        f"config.phases.{name} on {values['topology']}: {phase['reason']}; {phase['advice']}"
        for name, phase in values["phases"].items()
        if "reason" in phase
    ]
    if reasons:
        raise BadInput("; ".join(reasons))


def plan_all(job: Job, name: str, price: float | None) -> dict:
    """Returns the table of slices of all kinds of chips, or of the named kind, sorted by hours; see slices.py."""
    kinds = list(chips.CHIPS) if name == ALL else [name]
    table = slices.table(job, kinds, price)
    return table | {"sources": tpus.Slice.sources, "versions": versions()}


def plan_search(job: Job, name: str) -> dict:
    """Returns a table of settings for one target, the fastest first; see search.py."""
    target = topology.find(name)
    compilation.make_mesh(job, target)  # raises BadInput if the unchanged config is wrong
    return {
        "topology": target.name,
        "memory_per_chip": target.memory,
        "phases": {part.name: search.search(job, target, part) for part in job.phases},
        "sources": target.sources,
        "versions": versions(),
    }


def make_job(config: ConfigDict, phase: str | None, log, tokens: float | None = None) -> Job:
    """Returns the job of all phases, or of the given one.

    tokens: real tokens of these phases together, from which their steps follow; None: the config's steps.
    """
    config, vocabulary, store = resolve(config, log)
    phases = choose_phases(config, phase)
    work = expected_work(config, phases, vocabulary, store)
    if tokens:
        share = tokens / sum(tokens_of(phase, work[phase.name]) for phase in phases)
        for index, phase in enumerate(phases):
            steps = max(1, round(share * (phase.stop - phase.first)))
            if steps >= MAX_STEPS:
                raise BadInput(f"--tokens {tokens:g}: {steps:.3g} steps; limit {MAX_STEPS}")
            phases[index] = phase._replace(stop=phase.first + steps)
    return Job(config, phases, vocabulary, work, log, programs={})


def resolve(config: ConfigDict, log: Callable) -> tuple:
    """Returns the config as on a TPU, whose data type GPUs have, too, its vocabulary, and its store if that is on this
    disk."""
    config = jax_setup.resolve(config, "tpu")
    store = tasks.local_store(config, log)
    return config, expected_vocabulary(config, log), store


def expected_flops(config, phases: list, vocabulary) -> tuple:
    """Returns the shapes of the parameters, and {phase: FLOPs of a step}. Traces the model, and compiles nothing."""
    objective = base.make(config, vocabulary)
    rows = tasks.make(config).shapes(phases[0], 1)
    base.check_arrays(config, objective, rows)
    params = jax.eval_shape(objective.init, jax.random.key(0), rows)
    return params, {
        phase.name: tasks.step_flops(config, phase, vocabulary, params) for phase in phases
    }


def expected_counts(config: ConfigDict, log: Callable) -> dict:
    """Returns the JSON values of the numbers of parameters, and {phase: FLOPs of a training step per token}."""
    config, vocabulary, _ = resolve(config, log)
    phases = choose_phases(config, None)
    params, flops = expected_flops(config, phases, vocabulary)
    per_token = {
        phase.name: flops[phase.name] / tasks.tokens_per_step(config, phase) for phase in phases
    }
    numbers = models.parameters(config, params, vocabulary.size)
    return numbers | {"flops_per_token": per_token}


def expected_work(config, phases: list, vocabulary, store: Store | None) -> dict[str, dict]:
    """Returns {phase: the JSON values of the FLOPs and tokens of a step and of the share of real tokens}.

    The share is that of a sample of the store if it is on this disk, else 1; its origin has the lengths of documents.
    """
    dataset = tasks.make(config, store)
    survey = store and dataset.survey
    _, flops = expected_flops(config, phases, vocabulary)
    origin = "no store: full rows of one document each"
    if survey:
        part = store.splits[SPLITS[0]]
        mean = len(part.tokens) / len(part.document_ends)
        origin = f"{config.store}: {mean:.0f} tokens a document"
    return {
        phase.name: {
            "flops_per_step": flops[phase.name],
            "tokens_per_step": tasks.tokens_per_step(config, phase),
            "real_token_share": survey(phase).real_token_share if survey else 1.0,
            "real_token_share_from": origin,
        }
        for phase in phases
    }
