"""Seconds, hours and cost of a compiled step: the compiler's cycles, and arithmetic for what it sends and custom calls.

Collectives carry no cycles: their seconds are the bytes that a chip sends by the published bandwidth of its links. What
of them is hidden behind computing is read from the schedule. The range around it is from all of them, and custom calls
at LEAST times their limit, to none, and custom calls at MOST times it; see custom_calls.py.
"""

from typing import NamedTuple

from bert_jax.planning import timeline, topology
from bert_jax.planning.compilation import Step
from bert_jax.planning.custom_calls import LEAST, LIKELY, MOST

HOUR = 3600  # seconds
# Suffixes of the JSON keys of the two ends of the range.
ALL_HIDDEN, NONE_HIDDEN = "_all_hidden", "_none_hidden"


class Fill(NamedTuple):
    """Real tokens by places for them in the rows of a phase, and what says so."""

    share: float
    source: str


FULL = Fill(1.0, "full rows")


class Parts(NamedTuple):
    """Of a chip in a step: numbers that add up."""

    bytes: float
    arguments: float
    temporaries: float
    program: float
    cycles: float
    calls: float  # of the cycles, those of custom calls
    hidden: float  # seconds of sending
    sent: dict[tuple[str, tuple[str, ...]], float]  # bytes by kind and axes


def parts(one: topology.Slice, mesh, step: Step) -> Parts:
    """A chip of two devices holds and sends twice what one does."""
    chip, devices = one.chip, one.chip.devices

    def send(sent: list) -> float:
        return sum(
            devices * count / topology.bandwidth(one, mesh, kind, tuple(axes))
            for kind, axes, count in sent
        )

    cycles, sent = timeline.cycles(step.events), timeline.sent(step.events)
    alone = cycles / chip.hertz + send([(*key, count) for key, count in sent.items()])
    return Parts(
        devices * step.memory.total,
        devices * step.memory.arguments,
        devices * step.memory.temporaries,
        devices * step.memory.code,
        cycles,
        timeline.cycles(step.events, ("call",)),
        # To 1e-12 s: less is what sums in another order differ by.
        max(0.0, round(alone - timeline.seconds(step.events, chip.hertz, send), 12)),
        {key: devices * count for key, count in sent.items()},
    )


def estimate(
    one: topology.Slice,
    mesh,
    phase,
    found: Parts,
    flops: float,
    fill: Fill = FULL,
) -> dict:
    """The numbers of a phase."""
    computing = found.cycles / one.chip.hertz
    bytes_by_kind, seconds_by_kind = by_kind(one, mesh, found.sent)
    calls = found.calls / one.chip.hertz
    sending = sum(seconds_by_kind.values())
    hidden = min(found.hidden, computing, sending)
    values = {
        "steps": phase.last - phase.first,
        "bytes_per_chip": round(found.bytes),
        "bytes_of_arguments": round(found.arguments),
        "bytes_of_temporaries": round(found.temporaries),
        "bytes_of_program": round(found.program),
        "fits": found.bytes <= one.chip.memory,
        "cycles": round(found.cycles),
        "sent_per_chip": bytes_by_kind,
        "seconds_sending_by_kind": seconds_by_kind,
        "seconds_computing": computing,
        "seconds_of_custom_calls": calls,
        "seconds_sending": sending,
        "seconds_hidden": hidden,
        "flops_per_step": flops,
        "fill": fill.share,
        "fill_from": fill.source,
        **times(one, phase, flops, fill.share, computing + sending - hidden),
    }
    least, most = (computing + calls * (factor / LIKELY - 1) for factor in (LEAST, MOST))
    for end, seconds in ((ALL_HIDDEN, max(least, sending)), (NONE_HIDDEN, most + sending)):
        numbers = times(one, phase, flops, fill.share, seconds)
        values |= {f"{key}{end}": value for key, value in numbers.items()}
    return values


def by_kind(one: topology.Slice, mesh, sent: dict) -> tuple[dict[str, int], dict[str, float]]:
    """({kind: bytes}, {kind: seconds}) of what a chip sends, by kind and axes."""
    count, seconds = {}, {}
    for (kind, axes), n in sent.items():
        count[kind] = count.get(kind, 0) + n
        seconds[kind] = seconds.get(kind, 0) + n / topology.bandwidth(one, mesh, kind, axes)
    return {kind: round(n) for kind, n in count.items()}, seconds


def times(one: topology.Slice, phase, flops: float, fill: float, seconds: float) -> dict:
    return {
        "seconds_per_step": seconds,
        "rows_per_second": phase.batch / seconds,
        "tokens_per_second": fill * phase.batch * phase.length / seconds,
        "utilization": flops / seconds / one.chips / one.chip.flops,
        "hours": (phase.last - phase.first) * seconds / HOUR,
    }


def total(one: topology.Slice, phases: list[dict], price: float | None) -> dict:
    """Of all phases; cost in the currency of the price of a chip for an hour."""
    values = {}
    for end in ("", ALL_HIDDEN, NONE_HIDDEN):
        hours = sum(phase[f"hours{end}"] for phase in phases)
        values[f"hours{end}"] = hours
        values[f"cost{end}"] = None if price is None else price * one.chips * hours
    return values
