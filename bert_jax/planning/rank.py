"""The slices that a config divides over, by hours: sketched from short stacks of layers for each kind of chip."""

from collections.abc import Callable
from typing import NamedTuple

from ml_collections import ConfigDict

from bert_jax import build
from bert_jax.errors import BadInput
from bert_jax.parallel import mesh as meshes
from bert_jax.planning import topology
from bert_jax.planning.changes import changed
from bert_jax.planning.compilation import Failed, TooLarge
from bert_jax.planning.estimate import Fill, Parts, estimate, total
from bert_jax.planning.sketch import SPARE, Stacks, between, compile_stacks, extrapolate, is_whole
from bert_jax.runs.run_info import step_flops

LONGEST = 1000  # characters of reasons
# That a device computes at once, in two sketches of a kind of chip. A third, where slices have more, is of as many as
# the smallest of them that the line through the two lets fit: what a step makes no longer stays near the matrix units
# then, and all takes longer than on that line.
TOKENS = 1024, 8192
# Micro-batches of a sketch where there are several: what the compiler does in each, and what once, is then in a loop
# of so many trips, and outside of it. Of two it makes a loop that is a little different.
LOOP = 3


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

    Last are those that do not fit, before them those with more rows at once than were measured, which a line through
    fewer tells too fast.

    fills: by the name of a phase.
    """
    slices, left_out = [], {}
    for kind in kinds:
        mine, made = [one for one in topology.known() if one.kind == kind], {}
        for one in mine:
            places = topology.devices(one)
            try:
                made[one] = build.make_mesh(config, phases, places)
            except BadInput as error:
                left_out[one.name] = error
        lines = []
        for phase in phases:
            asked = {}  # rows at once, by the micro-batches in which they are measured
            for mesh in made.values():
                at_once = rows_at_once(config, phase, mesh)
                asked.setdefault(measured(config, phase, mesh), set()).add(at_once)
            line = {
                count: attempt(config, mine, phase, count, asked[count], vocabulary, tell)
                for count in sorted(asked)
            }
            lines.append(line)
        for one, mesh in made.items():
            price = prices.get(kind, prices.get(""))
            try:
                slices.append(row(config, one, mesh, phases, lines, vocabulary, fills, price))
            except (BadInput, Failed) as error:
                left_out[one.name] = error
    reasons = {name: str(error) for name, error in left_out.items()}
    if not slices:
        has_failed = any(isinstance(error, Failed) for error in left_out.values())
        told = "; ".join(f"{name}: {reason}" for name, reason in reasons.items())
        raise (Failed if has_failed else BadInput)(told[:LONGEST])
    slices.sort(key=lambda values: (not values["fits"], values["beyond_measured"], values["hours"]))
    return {"slices": slices, "left_out": reasons, "is_whole": is_whole(config)}


class Measured(NamedTuple):
    """Steps of a small slice, from few rows at once to many."""

    rows: list[int]
    stacks: list[Stacks]


def measured(config, phase, mesh) -> int:
    """In how many micro-batches a step is measured that has those of the config."""
    return 1 if meshes.micro_batches(mesh, phase.batch, config.train) == 1 else LOOP


def rows_at_once(config, phase, mesh) -> int:
    """Of a device."""
    count = meshes.micro_batches(mesh, phase.batch, config.train)
    return phase.batch // meshes.axis_size(mesh, meshes.ROWS) // count


def attempt(config, slices, phase, count, asked, vocabulary, tell) -> Measured | Exception:
    """Why it could not be measured is the matter of those slices alone that go by it."""
    try:
        return measure(config, slices, phase, count, asked, vocabulary, tell)
    except (BadInput, Failed) as error:
        return error


def measure(
    config,
    slices: list,
    phase,
    count: int,
    asked: set[int],
    vocabulary,
    tell: Callable[[str], None],
) -> Measured:
    """In so many micro-batches; asked: the rows at once of those that go by it."""
    inner = config.mesh.fsdp * config.mesh.tensor
    large = (s for s in slices if s.chips * s.chip.devices >= max(4, 2 * inner))
    one = next(large, slices[-1])
    changes = {"mesh.data": -1, "train.micro_batches": count, "train.rows_per_chip": 0}
    trial, devices = changed(config, changes), topology.devices(one)
    devices_of_rows = meshes.axis_size(build.make_mesh(trial, [], devices), meshes.ROWS)

    def stacks(at_once: int) -> Stacks:
        some = phase._replace(batch=at_once * count * devices_of_rows)
        return compile_stacks(trial, devices, some, vocabulary, tell)

    rows = [max(n, tokens // phase.length) for n, tokens in enumerate(TOKENS, start=1)]
    found = Measured(rows, [stacks(at_once) for at_once in rows])
    sketches = [extrapolate(one, stack) for stack in found.stacks]
    more = [at_once for at_once in asked if at_once > rows[-1]]
    fitting = (n for n in more if SPARE * along(rows, sketches, n).bytes <= one.chip.memory)
    if most := max(fitting, default=None):
        try:
            return Measured([*rows, most], [*found.stacks, stacks(most)])
        except (TooLarge, Failed) as error:
            tell(f"plan: {most} rows at once could not be measured: {error}")
    return found


def along(rows: list[int], found: list[Parts], at_once: int) -> Parts:
    """On the lines from one of the measured numbers of rows to the next, or beyond the last."""
    last = next((n for n in range(1, len(rows)) if at_once <= rows[n]), len(rows) - 1)
    share = (at_once - rows[last - 1]) / (rows[last] - rows[last - 1])
    return between(found[last - 1], found[last], share)


def row(config, one, mesh, phases: list, lines: list, vocabulary, fills, price) -> dict:
    """The numbers of a slice. Raises why, where what they go by could not be measured."""
    numbers = {}
    for phase, line in zip(phases, lines, strict=True):
        count = meshes.micro_batches(mesh, phase.batch, config.train)
        at_once = rows_at_once(config, phase, mesh)
        loop = measured(config, phase, mesh)
        if isinstance(line[loop], Exception):
            raise line[loop]
        rows, stacks = line[loop]
        there = [
            extrapolate(one, stack.with_trips(loop, count).elsewhere(mesh)) for stack in stacks
        ]
        flops = step_flops(config, vocabulary.size, phase)
        found, fill = along(rows, there, at_once), fills[phase.name]
        numbers[phase.name] = {
            **estimate(one, mesh, phase, found, flops, fill, SPARE),
            "beyond_measured": at_once > rows[-1],
        }
    values = total(one, list(numbers.values()), price)
    return {
        "topology": one.name,
        "accelerator_type": one.accelerator_type,
        "chips": one.chips,
        "mesh": dict(mesh.shape),
        "memory_per_chip": one.chip.memory,
        "fits": all(phase["fits"] for phase in numbers.values()),
        "beyond_measured": any(phase["beyond_measured"] for phase in numbers.values()),
        "bytes_per_chip": max(phase["bytes_per_chip"] for phase in numbers.values()),
        "chip_hours": one.chips * values["hours"],
        **values,
        "phases": numbers,
    }
