"""Estimates seconds, hours and cost of a compiled step.

Seconds of compute are the compiler's cycles; those of custom calls, and of all operations on GPUs, are a multiple of
their roofline (custom_calls.py, gpu_operations.py). Seconds of collectives are the bytes that a chip sends divided by
the published bandwidth of its links. How much of them overlaps with compute is read from the schedule. The low end of
the range assumes that all of it overlaps, and the least multiple of the roofline; the high end assumes no overlap, and
the largest multiple.
"""

from collections import Counter
from functools import cache

from bert_jax.planning import timeline
from bert_jax.planning.compilation import Job, Step
from bert_jax.planning.topology import Target

HOUR = 3600  # seconds
# Suffixes of the JSON keys: the low end of the range and the high end.
ALL_HIDDEN = "_all_hidden"
NONE_HIDDEN = "_none_hidden"


def estimate(job: Job, target: Target, mesh, phase, step: Step) -> dict:
    """Returns the JSON values of a phase whose step was compiled for the mesh.

    Bytes and seconds are per chip: a chip of two devices holds and sends twice what a device does.
    """
    chip = target.chip
    devices = chip.devices
    work = job.work[phase.name]
    bandwidth = cache(target.bandwidth)

    def seconds(kind: str, axes: list[str], count: float) -> float:
        return devices * count / bandwidth(mesh, kind, tuple(axes))

    bytes_by_kind = Counter()
    seconds_by_kind = Counter()
    for (kind, axes), count in timeline.sent(step.events).items():
        bytes_by_kind[kind] += devices * count
        seconds_by_kind[kind] += seconds(kind, axes, count)
    used = devices * step.memory.total
    cycles = timeline.cycles(step.events)
    computing = cycles / chip.hertz
    by_roofline = timeline.cycles(step.events, ("roofline",)) / chip.hertz
    sending = sum(seconds_by_kind.values())
    # Rounded to 1e-12 s: smaller differences come from the order of the sums.
    elapsed = timeline.seconds(step.events, chip.hertz, seconds)
    hidden = min(max(0.0, round(computing + sending - elapsed, 12)), computing, sending)
    values = {
        "steps": phase.stop - phase.first,
        "tokens": tokens_of(phase, work),
        "bytes_per_chip": used,
        "bytes_of_arguments": devices * step.memory.arguments,
        "bytes_of_temporaries": devices * step.memory.temporaries,
        "bytes_of_program": devices * step.memory.program,
        "fits": used <= target.memory,
        "cycles": round(cycles),
        "sent_per_chip": {kind: round(count) for kind, count in bytes_by_kind.items()},
        "seconds_sending_by_kind": dict(seconds_by_kind),
        "seconds_computing": computing,
        "seconds_by_roofline": by_roofline,
        "seconds_sending": sending,
        "seconds_hidden": hidden,
        **work,
    }
    factors = target.factors
    least = computing + by_roofline * (factors.least / factors.likely - 1)
    most = computing + by_roofline * (factors.most / factors.likely - 1)
    seconds_by_end = {
        "": computing + sending - hidden,
        ALL_HIDDEN: max(least, sending),
        NONE_HIDDEN: most + sending,
    }
    for end, step_seconds in seconds_by_end.items():
        values |= rates(target, phase, work, step_seconds, end)
    return values


def tokens_of(phase, work: dict) -> float:
    """Returns the real tokens of a phase. work: of a step, see `plan.expected_work`."""
    return (phase.stop - phase.first) * work["real_token_share"] * work["tokens_per_step"]


def rates(target: Target, phase, work: dict, seconds: float, end: str) -> dict:
    """Returns the numbers that follow from the seconds of a step. end: the suffix of their keys."""
    tokens = work["real_token_share"] * work["tokens_per_step"]
    return {
        f"seconds_per_step{end}": seconds,
        f"rows_per_second{end}": phase.batch / seconds,
        f"tokens_per_second{end}": tokens / seconds,
        f"utilization{end}": work["flops_per_step"] / seconds / target.chips / target.chip.flops,
        f"hours{end}": (phase.stop - phase.first) * seconds / HOUR,
    }


def total(target: Target, phases: list[dict], price: float | None) -> dict:
    """Returns tokens, hours and cost of all phases. price: of a chip-hour; the cost has its currency."""
    values = {"tokens": sum(phase["tokens"] for phase in phases)}
    for end in ("", ALL_HIDDEN, NONE_HIDDEN):
        hours = sum(phase[f"hours{end}"] for phase in phases)
        values[f"hours{end}"] = hours
        values[f"cost{end}"] = price and price * target.chips * hours
    return values
