"""Seconds, hours and cost of a compiled step: the compiler's cycles, and arithmetic for what it sends.

Collectives carry no cycles: their seconds are the bytes that a chip sends by the published bandwidth of its links. A
step takes between the longer of computing and sending (all of it hidden) and their sum (nothing hidden).
"""

from bert_jax import topology
from bert_jax.planning.compiled import Step

HOUR = 3600  # seconds
LEAST = "_least"  # ends the keys of a step whose collectives are all hidden


def estimate(one: topology.Slice, mesh, phase, step: Step, flops: float) -> dict:
    """The numbers of a phase; a chip of two devices holds and sends twice what one does."""
    chip, devices = one.chip, one.chip.devices
    sent = {}
    for part in step.sent:
        sent[part.kind] = sent.get(part.kind, 0) + devices * part.bytes
    computing = step.cycles / chip.hertz
    sending = sum(
        devices * part.bytes / topology.bandwidth(one, mesh, part.axes) for part in step.sent
    )
    values = {
        "steps": phase.last - phase.first,
        "bytes_per_chip": devices * step.memory.total,
        "bytes_of_arguments": devices * step.memory.arguments,
        "bytes_of_temporaries": devices * step.memory.temporaries,
        "fits": True,
        "cycles": step.cycles,
        "sent_per_chip": sent,
        "seconds_computing": computing,
        "seconds_sending": sending,
        "flops_per_step": flops,
    }
    least = times(one, phase, flops, max(computing, sending))
    values |= times(one, phase, flops, computing + sending)
    return values | {f"{key}{LEAST}": value for key, value in least.items()}


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
    for end in ("", LEAST):
        hours = sum(phase[f"hours{end}"] for phase in phases)
        values[f"hours{end}"] = hours
        values[f"cost{end}"] = None if price is None else price * one.chips * hours
    return values
