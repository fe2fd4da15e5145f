"""The slices that a config divides over, by hours: sketched from short stacks of layers for each kind of chip."""

import math
from collections.abc import Callable

from ml_collections import ConfigDict

from bert_jax import build, sharding, topology
from bert_jax.errors import BadInput
from bert_jax.facts import step_flops
from bert_jax.planning.changes import changed
from bert_jax.planning.estimate import Fill, Parts, estimate, total
from bert_jax.planning.sketch import SPARE, between, sketch

LONGEST = 1000  # characters of reasons
TOKENS = 1024, 8192  # that a device computes at once, in the two sketches of a kind of chip


def rank(
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
    slices, left_out = [], {}
    for kind in kinds:
        mine, meshes = [one for one in topology.known() if one.kind == kind], {}
        for one in mine:
            try:
                meshes[one] = build.make_mesh(config, phases, topology.devices(one))
            except BadInput as error:
                left_out[one.name] = str(error)
        try:
            lines = [measure(config, mine, phase, vocabulary, tell) for phase in phases if meshes]
        except BadInput as error:
            left_out |= {one.name: str(error) for one in meshes}
            continue
        for one, mesh in meshes.items():
            price = prices.get(kind, prices.get(""))
            slices.append(row(config, one, mesh, phases, lines, vocabulary, fills, price))
    if not slices:
        raise BadInput(
            "; ".join(f"{name}: {reason}" for name, reason in left_out.items())[:LONGEST]
        )
    slices.sort(key=lambda values: (not values["fits"], values["hours"]))
    return {"slices": slices, "left_out": left_out}


def measure(config, slices: list, phase, vocabulary, tell: Callable[[str], None]) -> tuple:
    """(mesh, rows and parts, rows and parts) of a small slice, from few rows at once to many."""
    inner = config.mesh.fsdp * config.mesh.tensor
    large = (s for s in slices if s.chips * s.chip.devices >= max(4, 2 * inner))
    one = next(large, slices[-1])
    found = []
    for tokens in TOKENS:
        rows = max(len(found) + 1, tokens // phase.length)
        changes = {"mesh.data": -1, "train.micro_batches": 1, "train.rows_per_chip": 0}
        trial = changed(config, changes)
        mesh = build.make_mesh(trial, [], topology.devices(one))
        few = phase._replace(batch=rows * sharding.axis_size(mesh, sharding.ROWS))
        found.append((rows, sketch(one, trial, topology.devices(one), few, vocabulary, tell)))
    return mesh, *found


def row(config, one, mesh, phases: list, lines: list, vocabulary, fills, price) -> dict:
    """The numbers of a slice."""
    numbers = {}
    for phase, (measured, (few, a), (many, b)) in zip(phases, lines, strict=True):
        count = sharding.micro_batches(mesh, phase.batch, config.train)
        rows = phase.batch // sharding.axis_size(mesh, sharding.ROWS) // count
        found = between(a, b, (rows - few) / (many - few))
        found = elsewhere(repeat(found, count), measured, mesh)
        flops = step_flops(config, vocabulary.size, phase)
        fill = fills[phase.name]
        numbers[phase.name] = estimate(one, mesh, phase, found, flops, fill, SPARE)
    values = total(one, list(numbers.values()), price)
    return {
        "topology": one.name,
        "accelerator_type": one.accelerator_type,
        "chips": one.chips,
        "mesh": dict(mesh.shape),
        "memory_per_chip": one.chip.memory,
        "fits": all(phase["fits"] for phase in numbers.values()),
        "bytes_per_chip": max(phase["bytes_per_chip"] for phase in numbers.values()),
        "chip_hours": one.chips * values["hours"],
        **values,
        "phases": numbers,
    }


def repeat(found: Parts, count: int) -> Parts:
    """In so many micro-batches. Gradients are summed over `data` once; the update, made once, counts as often, and its
    seconds stand for those of adding up gradients.
    """
    sent = {key: n * (1 if key[1] == ("data",) else count) for key, n in found.sent.items()}
    again = {name: count * getattr(found, name) for name in ("cycles", "kernels", "hidden")}
    return found._replace(**again, sent=sent)


def elsewhere(found: Parts, measured, mesh) -> Parts:
    """On another mesh, around whose longer rings a chip sends a larger share."""

    def share(where, axes) -> float:
        group = math.prod(where.shape[axis] for axis in axes)
        return (group - 1) / group

    sent = {
        (kind, axes): count * share(mesh, axes) / share(measured, axes)
        for (kind, axes), count in found.sent.items()
    }
    return found._replace(sent=sent)
