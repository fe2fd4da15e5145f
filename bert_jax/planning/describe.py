"""Formats plans as text, and says which numbers are the compiler's and which are arithmetic."""

from bert_jax.parallel.chips import gib
from bert_jax.planning.estimate import ALL_HIDDEN, NONE_HIDDEN
from bert_jax.planning.search import options

BRACKETS = "; the ranges in brackets also go from all communication overlapped to none of it"
NOT_COMPILED = (
    "; slices without GiB were not compiled: they may not fit, and their hours are scaled from"
    " another slice, without the fixed overhead of an instruction, so that large slices look"
    " faster than they are"
)


def describe(values: dict) -> str:
    """Returns the text of a plan of one target."""
    mesh = " ".join(f"{axis}={size}" for axis, size in values["mesh"].items())
    lines = [
        f"{values['topology']} ({values['accelerator_type']}): chips {values['chips']}, hosts"
        f" {values['hosts']}, mesh {mesh}; {values['parameters']:,} parameters,"
        f" {values['body_parameters']:,} in the body; {values['dtype']}"
    ]
    for name, phase in values["phases"].items():
        lines += describe_phase(name, phase, values["memory_per_chip"])
    if "hours" in values:
        cost = f", cost {with_range(values, 'cost')}" if values["cost"] else ""
        head = "total" if values["fits"] else "total, phases that do not fit as advised"
        numbers = f"{digits(values['tokens'])} tokens, {with_range(values, 'hours')} hours"
        lines.append(f"{head}: {numbers}{cost}")
    return "\n".join([*lines, values["sources"] + BRACKETS])


def describe_phase(name: str, phase: dict, memory: float) -> list[str]:
    """Returns the lines of one phase. memory: bytes of a chip."""
    if "reason" in phase:
        return [f"{name}: does not fit: {phase['reason']}; {phase['advice']}"]
    seconds = phase["seconds_sending_by_kind"]
    collectives = [
        f"{kind} {digits(count / 1e6)} MB {digits(seconds[kind])} s"
        for kind, count in phase["sent_per_chip"].items()
    ]
    by_roofline = ""
    if 0 < phase["seconds_by_roofline"] < phase["seconds_computing"]:
        by_roofline = f"{digits(phase['seconds_by_roofline'])} s by roofline; "
    verdict = "fits" if phase["fits"] else "may not fit"
    return [
        f"{name}: {verdict}, {gib(phase['bytes_per_chip'])} of {gib(memory)} GiB a chip"
        f" ({gib(phase['bytes_of_arguments'])} state and batch, {gib(phase['bytes_of_temporaries'])}"
        f" temporaries, {gib(phase['bytes_of_program'])} program)",
        f"  compute {digits(phase['seconds_computing'])} s ({by_roofline}attention"
        f" {phase['attention']}),"
        f" communication {digits(phase['seconds_sending'])} s ({', '.join(collectives) or 'none'}),"
        f" {digits(phase['seconds_hidden'])} s of it overlapped",
        f"  {with_range(phase, 'seconds_per_step')} s a step,"
        f" {with_range(phase, 'rows_per_second')} rows/s",
        f"  {with_range(phase, 'tokens_per_second')} tokens/s, {phase['real_token_share']:.0%}"
        f" real tokens (from {phase['real_token_share_from']})",
        f"  utilization {with_range(phase, 'utilization')}; {with_range(phase, 'hours')} hours for"
        f" {phase['steps']:,} steps, {digits(phase['tokens'])} tokens",
    ]


def digits(number: float) -> str:
    """Formats three significant digits, or all digits of a large number: plans range from seconds to years."""
    return f"{number:,.0f}" if number >= 100 else f"{float(f'{number:.3g}'):,g}"


def with_range(values: dict, key: str) -> str:
    """Formats a number with its range in brackets."""
    number = digits(values[key])
    ends = sorted(values[f"{key}{end}"] for end in (ALL_HIDDEN, NONE_HIDDEN))
    least, most = map(digits, ends)
    return number if least == most else f"{number} ({least} to {most})"


def describe_table(values: dict) -> str:
    """Returns the text of a table of slices."""
    lines = [
        f"{digits(values['slices'][0]['tokens'])} tokens",
        "topology    accelerator     chips     hours  chip-hours        cost  GiB a chip",
    ]
    for row in values["slices"]:
        cost = digits(row["cost"]) if row["cost"] else "-"
        numbers = f"{digits(row['hours']):>9} {digits(row['chip_hours']):>11} {cost:>11}"
        name = f"{row['topology']:<11} {row['accelerator_type']:<14} {row['chips']:>6}"
        lines.append(f"{name} {numbers}  {describe_memory(row)}".rstrip())
    lines += [f"skipped {name}: {reason}" for name, reason in values["left_out"].items()]
    return "\n".join([*lines, values["sources"] + NOT_COMPILED])


def describe_memory(row: dict) -> str:
    """Returns the memory of a slice as text, empty if it was not compiled."""
    if row["bytes_per_chip"] is None:
        return f"does not fit: {row['reason']}" if "reason" in row else ""
    used = f"{gib(row['bytes_per_chip'])} of {gib(row['memory_per_chip'])}"
    return used if row["fits"] else f"{used}, does not fit"


def describe_search(values: dict) -> str:
    """Returns the text of a search over settings on one target."""
    lines = []
    for name, table in values["phases"].items():
        lines.append(f"{name} on {values['topology']}, s a step, utilization, GiB a chip:")
        lines += [describe_row(row) for row in table]
    return "\n".join([*lines, values["sources"] + BRACKETS])


def describe_row(row: dict) -> str:
    name = options(row["settings"]) or "the config unchanged"
    if "reason" in row:
        return f"  {name}: {row['reason']}"
    used = f"{gib(row['bytes_per_chip']):>5}"
    if not row["fits"]:
        used += ", may not fit"
    seconds = with_range(row, "seconds_per_step")
    return f"  {seconds}  {digits(row['utilization'])}  {used}  {name}"
