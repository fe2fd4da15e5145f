"""Seconds, hours and cost of a compiled step: the compiler's cycles, and arithmetic for what it sends and custom calls.

Collectives carry no cycles: their seconds are the bytes that a chip sends by the published bandwidth of its links. What
of them is hidden behind computing is read from the schedule. The range around it is from all of them, and custom calls
at LEAST times their limit, to none, and custom calls at MOST times it; see custom_calls.py.
"""

from collections import Counter

from bert_jax.planning import timeline, topology
from bert_jax.planning.compilation import Job, Step
from bert_jax.planning.custom_calls import LEAST, LIKELY, MOST
from bert_jax.runs.run_info import step_flops

HOUR = 3600  # seconds
# Suffixes of the JSON keys of the two ends of the range.
ALL_HIDDEN, NONE_HIDDEN = "_all_hidden", "_none_hidden"


def estimate(job: Job, one: topology.Slice, mesh, phase, step: Step) -> dict:
    """The numbers of a phase, whose step was compiled for the mesh. A chip of two devices holds and sends twice what
    one does."""
    chip, devices = one.chip, one.chip.devices

    def seconds(kind: str, axes: list[str], count: float) -> float:
        return devices * count / topology.bandwidth(one, mesh, kind, tuple(axes))

    def send(sent: list) -> float:
        return sum(seconds(*part) for part in sent)

    bytes_by_kind, seconds_by_kind = Counter(), Counter()
    for (kind, axes), count in timeline.sent(step.events).items():
        bytes_by_kind[kind] += devices * count
        seconds_by_kind[kind] += seconds(kind, axes, count)
    computing = timeline.cycles(step.events) / chip.hertz
    calls = timeline.cycles(step.events, ("call",)) / chip.hertz
    sending = sum(seconds_by_kind.values())
    # To 1e-12 s: less is what sums in another order differ by.
    hidden = round(computing + sending - timeline.seconds(step.events, chip.hertz, send), 12)
    hidden = min(max(0.0, hidden), computing, sending)
    values = {
        "steps": phase.last - phase.first,
        "bytes_per_chip": devices * step.memory.total,
        "bytes_of_arguments": devices * step.memory.arguments,
        "bytes_of_temporaries": devices * step.memory.temporaries,
        "bytes_of_program": devices * step.memory.program,
        "fits": devices * step.memory.total <= chip.memory,
        "cycles": round(timeline.cycles(step.events)),
        "sent_per_chip": {kind: round(count) for kind, count in bytes_by_kind.items()},
        "seconds_sending_by_kind": dict(seconds_by_kind),
        "seconds_computing": computing,
        "seconds_of_custom_calls": calls,
        "seconds_sending": sending,
        "seconds_hidden": hidden,
        "flops_per_step": step_flops(job.config, job.vocabulary.size, phase),
        "real_token_share": job.real_tokens[phase.name].share,
        "real_token_share_from": job.real_tokens[phase.name].source,
    }
    least, most = (computing + calls * (factor / LIKELY - 1) for factor in (LEAST, MOST))
    ends = {"": computing + sending - hidden, ALL_HIDDEN: max(least, sending)}
    for end, taken in (ends | {NONE_HIDDEN: most + sending}).items():
        values |= {f"{key}{end}": value for key, value in times(one, phase, values, taken).items()}
    return values


def times(one: topology.Slice, phase, values: dict, seconds: float) -> dict:
    return {
        "seconds_per_step": seconds,
        "rows_per_second": phase.batch / seconds,
        "tokens_per_second": values["real_token_share"] * phase.batch * phase.length / seconds,
        "utilization": values["flops_per_step"] / seconds / one.chips / one.chip.flops,
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
