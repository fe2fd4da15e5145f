"""The slices that a config divides over, by hours: arithmetic from one compile a kind of chip.

What a slice computes and sends follows from another's: its rows a device, and the share that a chip sends of a ring.
What is done once for all rows, as the update of parameters, does not shrink with the rows; that any instruction takes
some cycles however few they are is left out, so that large slices look faster than they are. What a slice holds does
not follow, so the first ones are compiled whole, and only these are told to fit.
"""

import math

from bert_jax.errors import BadInput
from bert_jax.parallel import mesh as meshes
from bert_jax.planning import compilation, topology
from bert_jax.planning.compilation import Failed, Job, Step
from bert_jax.planning.estimate import estimate, total

COMPILED = 3  # slices
TRIES = 3  # slices of a kind that are compiled until one fits
TOKENS = 8192  # that a device of the compiled slice computes at once, about: few enough to fit, enough to be busy


def table(job: Job, kinds: list[str], price: float | None) -> dict:
    """`slices` of these kinds, the fastest first, and `left_out`: over which the config does not divide, and why.

    price: of a chip for an hour.
    """
    left_out = {}
    rows = [row for kind in kinds for row in uncompiled(job, kind, price, left_out)]
    if not rows:
        raise BadInput("; ".join(f"{name}: {reason}" for name, reason in left_out.items())[:1000])
    rows.sort(key=lambda row: row["hours"])
    first = [compiled(job, row, price) for row in rows[:COMPILED]]
    first.sort(key=lambda row: (not row["fits"], row["hours"]))
    return {"slices": first + rows[COMPILED:], "left_out": left_out}


def uncompiled(job: Job, kind: str, price: float | None, left_out: dict[str, str]) -> list[dict]:
    """A row for each slice of a kind, by what the compiler makes of one of them."""
    made = {}
    for one in (one for one in topology.known() if one.kind == kind):
        try:
            made[one] = compilation.make_mesh(job, one)
        except BadInput as error:
            left_out[one.name] = str(error)
    for reference in choose(job, made):
        mesh = made[reference]
        try:
            steps = [compilation.compile_step(job, reference, mesh, phase) for phase in job.phases]
        except (BadInput, Failed) as error:
            left_out[reference.name] = str(error)
            del made[reference]
        else:
            return [
                describe(job, one, other, [elsewhere(step, mesh, other) for step in steps], price)
                for one, other in made.items()
            ]
    left_out |= {one.name: f"none of {kind} that were compiled fits" for one in made}
    return []


def choose(job: Job, made: dict) -> list[topology.Slice]:
    """The slices to compile, one after the other until one fits: those that send along every axis first, and of these
    those whose devices compute about TOKENS at once."""
    wanted = {axis for mesh in made.values() for axis, size in mesh.shape.items() if size > 1}
    phase = job.phases[0]

    def distance(one: topology.Slice) -> tuple:
        missing = sum(made[one].shape[axis] == 1 for axis in wanted)
        count = meshes.micro_batches(made[one], phase.batch, job.config.train)
        rows = phase.batch / meshes.axis_size(made[one], meshes.ROWS) / count
        return missing, abs(math.log(rows * phase.length / TOKENS))

    return sorted(made, key=distance)[:TRIES]


def compiled(job: Job, row: dict, price: float | None) -> dict:
    """The row of a slice by a compile of its own, which tells whether it fits."""
    one = topology.find(row["topology"])
    mesh = compilation.make_mesh(job, one)
    try:
        steps = [compilation.compile_step(job, one, mesh, phase) for phase in job.phases]
    except (BadInput, Failed) as error:
        return row | {"fits": False, "reason": str(error)}
    held = round(max(step.memory.total for step in steps) * one.chip.devices)
    found = {"fits": held <= one.chip.memory, "bytes_per_chip": held}
    return describe(job, one, mesh, steps, price) | found


def elsewhere(step: Step, mesh, other) -> Step:
    """A step of `mesh` on another one, whose devices compute fewer or more of its rows."""
    work = mesh.size / other.size

    def share(where, axes: list[str]) -> float:
        group = math.prod(where.shape[axis] for axis in axes)
        return (group - 1) / group

    def part(kind: str, axes: list[str], size: float) -> list:
        # Activations, which grow with the rows, are sent along `tensor`; elsewhere parameters or gradients.
        grown = work if "tensor" in axes else 1
        return [kind, axes, size * grown * share(other, axes) / share(mesh, axes)]

    def moved(event: list) -> list:
        match event:
            case ["compute" | "call" as kind, cycles]:
                return [kind, cycles * work]
            case ["loop", trips, events]:
                return ["loop", trips, [*map(moved, events)]]
            case ["send" | "start", *key, sent]:
                return [event[0], *key, [part(*each) for each in sent]]
        return event

    return step._replace(events=[*map(moved, step.events)])


def describe(job: Job, one, mesh, steps: list[Step], price: float | None) -> dict:
    """The row of a slice, by the steps of its phases; whether they fit is another question."""
    numbers = {
        phase.name: estimate(job, one, mesh, phase, step)
        for phase, step in zip(job.phases, steps, strict=True)
    }
    values = total(one, list(numbers.values()), price)
    return {
        "topology": one.name,
        "accelerator_type": one.accelerator_type,
        "chips": one.chips,
        "mesh": dict(mesh.shape),
        "memory_per_chip": one.chip.memory,
        "fits": None,
        "bytes_per_chip": None,
        "chip_hours": one.chips * values["hours"],
        **values,
        "phases": numbers,
    }
