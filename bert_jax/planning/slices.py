"""The table of slices that divide the sizes of a config, sorted by hours.

One slice of each kind of chip is compiled, and its numbers are scaled to the others. Compute scales with the rows per
device; communication with the share that a chip sends in a ring; the parameter update with the state that it holds. The
fixed overhead of an instruction is ignored, so large slices look faster than they are. Memory cannot be scaled, so the
first COMPILED slices of the table are compiled themselves, and `fits` is given for these alone.
"""

import math

from bert_jax.errors import BadInput
from bert_jax.parallel import mesh as meshes
from bert_jax.planning import compilation, tpus
from bert_jax.planning.compilation import CompilerFailed, Job, Step
from bert_jax.planning.estimate import estimate, total

COMPILED = 3  # slices at the top of the table that are compiled themselves
TRIES = 3  # slices of a kind to compile at most, until one fits
STATE = ("fsdp", "tensor")  # axes over which the state is sharded
TOKENS = 8192  # preferred tokens per device of the compiled slice: few enough to fit, enough to keep it busy


def table(job: Job, kinds: list[str], price: float | None) -> dict:
    """Returns `slices` of these kinds, the fastest first, and `left_out`: {name of a skipped slice: reason}.

    A slice is skipped if a size of the config is not divisible by it.

    price: of a chip-hour.
    """
    left_out = {}
    rows = [row for kind in kinds for row in scaled_rows(job, kind, price, left_out)]
    if not rows:
        raise BadInput("; ".join(f"{name}: {reason}" for name, reason in left_out.items())[:1000])
    rows.sort(key=lambda row: row["hours"])
    first = [compile_row(job, row, price) for row in rows[:COMPILED]]
    first.sort(key=lambda row: (not row["fits"], row["hours"]))
    return {"slices": first + rows[COMPILED:], "left_out": left_out}


def scaled_rows(job: Job, kind: str, price: float | None, left_out: dict[str, str]) -> list[dict]:
    """Returns a row for each slice of a kind, scaled from the one that is compiled. Adds to left_out."""
    candidates = {}
    for tpu in tpus.all_slices():
        if tpu.kind != kind:
            continue
        try:
            candidates[tpu] = compilation.make_mesh(job, tpu)
        except BadInput as error:
            left_out[tpu.name] = str(error)
    for reference in choose(job, candidates):
        mesh = candidates[reference]
        try:
            steps = [compilation.compile_step(job, reference, mesh, phase) for phase in job.phases]
        except (BadInput, CompilerFailed) as error:
            left_out[reference.name] = str(error)
            del candidates[reference]
            continue
        rows = []
        for tpu, other in candidates.items():
            scaled = [rescale(step, mesh, other) for step in steps]
            rows.append(describe(job, tpu, other, scaled, price))
        return rows
    left_out |= {tpu.name: f"no compiled slice of {kind} fits" for tpu in candidates}
    return []


def choose(job: Job, candidates: dict) -> list[tpus.Slice]:
    """Returns up to TRIES of the candidates ({slice: mesh}), in the order in which to compile them until one fits.

    Slices that communicate along most mesh axes come first; among these, those with about TOKENS tokens per device.
    """
    phase = job.phases[0]
    axes = meshes.AXES
    if job.config.mesh.fsdp == -1:
        axes = STATE  # by default `fsdp` is nearly all of a slice, and little is sent along `data`

    def distance(tpu: tpus.Slice) -> tuple:
        mesh = candidates[tpu]
        silent = sum(mesh.shape[axis] == 1 for axis in axes)
        micro_batches = meshes.micro_batches(mesh, phase, job.config.train)
        rows = phase.batch / meshes.axis_size(mesh, meshes.ROWS) / micro_batches
        return silent, abs(math.log(rows * phase.length / TOKENS))

    return sorted(candidates, key=distance)[:TRIES]


def compile_row(job: Job, row: dict, price: float | None) -> dict:
    """Returns the row of a slice from a compile of its own, with `fits` and `bytes_per_chip`."""
    tpu = tpus.find(row["topology"])
    mesh = compilation.make_mesh(job, tpu)
    try:
        steps = [compilation.compile_step(job, tpu, mesh, phase) for phase in job.phases]
    except (BadInput, CompilerFailed) as error:
        return row | {"fits": False, "reason": str(error)}
    values = describe(job, tpu, mesh, steps, price)
    used = max(phase["bytes_per_chip"] for phase in values["phases"].values())
    return values | {"fits": used <= tpu.chip.memory, "bytes_per_chip": used}


def rescale(step: Step, mesh, other) -> Step:
    """Scales a step that was compiled for `mesh` to the mesh `other`, with another number of rows per device."""
    work = mesh.size / other.size
    state = meshes.axis_size(mesh, STATE) / meshes.axis_size(other, STATE)

    def ring_share(mesh, axes: list[str]) -> float:
        return 1 - 1 / meshes.axis_size(mesh, tuple(axes))

    def scale_transfer(kind: str, axes: list[str], size: float) -> list:
        # Along `tensor` devices send activations, which scale with the rows; along other axes parameters or gradients.
        factor = work if "tensor" in axes else 1
        return [kind, axes, size * factor * ring_share(other, axes) / ring_share(mesh, axes)]

    def scale(event: list) -> list:
        match event:
            case ["compute" | "roofline" as kind, cycles]:
                return [kind, cycles * work]
            case ["update", cycles]:
                return ["update", cycles * state]
            case ["loop", trips, events]:
                return ["loop", trips, [scale(event) for event in events]]
            case ["send" | "start", *key, transfers]:
                return [event[0], *key, [scale_transfer(*transfer) for transfer in transfers]]
        return event

    return step._replace(events=[scale(event) for event in step.events])


def describe(job: Job, tpu, mesh, steps: list[Step], price: float | None) -> dict:
    """Returns the row of a slice from the steps of its phases. `fits` and `bytes_per_chip` are None."""
    numbers = {
        phase.name: estimate(job, tpu, mesh, phase, step)
        for phase, step in zip(job.phases, steps, strict=True)
    }
    values = total(tpu, list(numbers.values()), price)
    return {
        "topology": tpu.name,
        "accelerator_type": tpu.accelerator_type,
        "chips": tpu.chips,
        "mesh": dict(mesh.shape),
        "memory_per_chip": tpu.chip.memory,
        "fits": None,
        "bytes_per_chip": None,
        "chip_hours": tpu.chips * values["hours"],
        **values,
        "phases": numbers,
    }
