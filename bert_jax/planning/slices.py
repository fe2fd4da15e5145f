"""The slices that a config divides over, by hours: arithmetic from one compile a kind of chip.

What a slice computes and sends follows from another's: its rows a device, and the share that a chip sends of a ring.
What a step does for all rows together, as the update of parameters, is taken to shrink with the rows, too, so that
large slices look faster than they are. What a slice holds does not follow, so the first ones are compiled whole, and
only these are told to fit.
"""

import math
from collections.abc import Callable

from ml_collections import ConfigDict

from bert_jax import build
from bert_jax.errors import BadInput
from bert_jax.parallel import mesh as meshes
from bert_jax.planning import compilation, topology
from bert_jax.planning.compilation import Failed, TooLarge
from bert_jax.planning.estimate import Fill, Parts, estimate, parts, total
from bert_jax.runs.run_info import step_flops

COMPILED = 3  # slices
TRIES = 3  # slices of a kind that are compiled until one fits
TOKENS = 8192  # that a device of the compiled slice computes at once, about: few enough to fit, enough to be busy


def table(
    config: ConfigDict,
    kinds: list[str],
    phases: list,
    vocabulary,
    fills: dict[str, Fill],
    prices: dict,
    tell: Callable[[str], None],
) -> dict:
    """`slices` of these kinds, the fastest first, and `left_out`: over which the config does not divide, and why.

    fills: by the name of a phase.
    """
    rows, left_out, places = [], {}, {}
    for kind in kinds:
        made = {}
        for one in (one for one in topology.known() if one.kind == kind):
            try:
                made[one] = build.make_mesh(config, phases, topology.devices(one))
            except BadInput as error:
                left_out[one.name] = str(error)
        if not made:
            continue
        for reference in choose(config, made, phases[0]):
            try:
                found = compiled(config, reference, made[reference], phases, vocabulary, tell)
                break
            except (BadInput, Failed, TooLarge) as error:
                left_out[reference.name] = str(error)
        else:
            left_out |= {one.name: f"none of {kind} that were compiled fits" for one in made}
            continue
        for one, mesh in made.items():
            if one.name in left_out:
                continue
            there = [elsewhere(made[reference], mesh, step) for step in found]
            numbers = estimates(config, one, mesh, phases, there, vocabulary, fills)
            rows.append(row(one, mesh, numbers, prices.get(kind, prices.get(""))))
            places[one.name] = one, mesh
    if not rows:
        raise BadInput("; ".join(f"{name}: {reason}" for name, reason in left_out.items())[:1000])
    rows.sort(key=lambda values: values["hours"])
    for number, values in enumerate(rows[:COMPILED]):
        one, mesh = places[values["topology"]]
        try:
            found = compiled(config, one, mesh, phases, vocabulary, tell)
        except (BadInput, Failed, TooLarge) as error:
            rows[number] = values | {"fits": False, "reason": str(error)}
            continue
        numbers = estimates(config, one, mesh, phases, found, vocabulary, fills)
        price = prices.get(one.kind, prices.get(""))
        rows[number] = row(one, mesh, numbers, price) | {
            "fits": all(phase["fits"] for phase in numbers.values()),
            "bytes_per_chip": max(phase["bytes_per_chip"] for phase in numbers.values()),
        }
    rows[:COMPILED] = sorted(
        rows[:COMPILED], key=lambda values: (not values["fits"], values["hours"])
    )
    return {"slices": rows, "left_out": left_out}


def choose(config, made: dict, phase) -> list[topology.Slice]:
    """The slices to compile, one after the other until one fits: those that send along every axis first, and of these
    those whose devices compute about TOKENS at once."""
    wanted = {axis for mesh in made.values() for axis, size in mesh.shape.items() if size > 1}

    def distance(one: topology.Slice) -> tuple:
        missing = sum(made[one].shape[axis] == 1 for axis in wanted)
        count = meshes.micro_batches(made[one], phase.batch, config.train)
        rows = phase.batch / meshes.axis_size(made[one], meshes.ROWS) / count
        return missing, abs(math.log(rows * phase.length / TOKENS))

    return sorted(made, key=distance)[:TRIES]


def compiled(config, one, mesh, phases: list, vocabulary, tell) -> list[Parts]:
    """Of each phase; raises TooLarge and Failed."""
    design = build.design(config, mesh, vocabulary)
    steps = (compilation.compile_step(config, design, phase, tell) for phase in phases)
    return [parts(one, mesh, step) for step in steps]


def elsewhere(mesh, other, found: Parts) -> Parts:
    """A step of `mesh` on another one, whose devices compute fewer or more of its rows."""

    def share(where, axes) -> float:
        group = math.prod(where.shape[axis] for axis in axes)
        return (group - 1) / group

    work = mesh.size / other.size
    # Collectives along `tensor` send activations, which grow with the rows; all others send parameters or gradients.
    sent = {
        (kind, axes): count
        * share(other, axes)
        / share(mesh, axes)
        * (work if "tensor" in axes else 1)
        for (kind, axes), count in found.sent.items()
        if share(mesh, axes)
    }
    return found._replace(
        cycles=found.cycles * work,
        calls=found.calls * work,
        hidden=found.hidden * min(1.0, work),
        sent=sent,
    )


def estimates(config, one, mesh, phases, found: list[Parts], vocabulary, fills) -> dict[str, dict]:
    """{phase: its numbers}"""
    return {
        phase.name: estimate(
            one, mesh, phase, step, step_flops(config, vocabulary.size, phase), fills[phase.name]
        )
        for phase, step in zip(phases, found, strict=True)
    }


def row(one, mesh, numbers: dict[str, dict], price: float | None) -> dict:
    """The numbers of a slice that was not compiled."""
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
