"""Seconds, hours and cost of a compiled step: the compiler's cycles, and arithmetic for what it sends.

Collectives carry no cycles: their seconds are the bytes that a chip sends by the published bandwidth of its links. What
of them is hidden behind computing is read from the schedule; the range around it is from all of them to none.
"""

from bert_jax import topology
from bert_jax.planning import timeline
from bert_jax.planning.compiled import Step

HOUR = 3600  # seconds
# What ends the keys of a step that hides all it sends, and of one that hides nothing.
LEAST, MOST = "_least", "_most"


def estimate(one: topology.Slice, mesh, phase, step: Step, flops: float) -> dict:
    """The numbers of a phase; a chip of two devices holds and sends twice what one does."""
    chip, devices = one.chip, one.chip.devices

    def send(parts: list) -> float:
        return sum(
            devices * count / topology.bandwidth(one, mesh, tuple(axes)) for _, axes, count in parts
        )

    sent = timeline.sent(step.events)
    by_kind = {}
    for (kind, _), count in sent.items():
        by_kind[kind] = by_kind.get(kind, 0) + devices * count
    cycles = timeline.cycles(step.events)
    computing = cycles / chip.hertz
    sending = send([(*key, count) for key, count in sent.items()])
    scheduled = timeline.seconds(step.events, chip.hertz, send)
    values = {
        "steps": phase.last - phase.first,
        "bytes_per_chip": devices * step.memory.total,
        "bytes_of_arguments": devices * step.memory.arguments,
        "bytes_of_temporaries": devices * step.memory.temporaries,
        "fits": True,
        "cycles": cycles,
        "sent_per_chip": by_kind,
        "seconds_computing": computing,
        "seconds_of_kernels": timeline.cycles(step.events, ("kernel",)) / chip.hertz,
        "seconds_sending": sending,
        "seconds_hidden": max(0.0, computing + sending - scheduled),
        "flops_per_step": flops,
        **times(one, phase, flops, scheduled),
    }
    for end, seconds in ((LEAST, max(computing, sending)), (MOST, computing + sending)):
        found = times(one, phase, flops, seconds)
        values |= {f"{key}{end}": value for key, value in found.items()}
    return values


def times(one: topology.Slice, phase, flops: float, seconds: float) -> dict:
    return {
        "seconds_per_step": seconds,
        "rows_per_second": phase.batch / seconds,
        "tokens_per_second": phase.batch * phase.length / seconds,
        "utilization": flops / seconds / one.chips / one.chip.flops,
        "hours": (phase.last - phase.first) * seconds / HOUR,
    }


def total(one: topology.Slice, phases: list[dict], price: float | None) -> dict:
    """Of all phases; cost in the currency of the price of a chip for an hour."""
    values = {}
    for end in ("", LEAST, MOST):
        hours = sum(phase[f"hours{end}"] for phase in phases)
        values[f"hours{end}"] = hours
        values[f"cost{end}"] = None if price is None else price * one.chips * hours
    return values
