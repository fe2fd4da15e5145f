"""Plans for people; what the compiler estimates and what is arithmetic are told apart."""

from bert_jax.parallel import chips
from bert_jax.planning.custom_calls import LEAST, LIKELY, MOST
from bert_jax.planning.estimate import ALL_HIDDEN, NONE_HIDDEN
from bert_jax.planning.search import options

SOURCES = (
    "bytes held, cycles and the order of what is sent and computed are the compiler's; seconds of"
    " sending and of custom calls are arithmetic, by published bandwidths and"
    f" {LIKELY} times a call's limit; gathers, scatters, sorts and copies are not counted"
)
BRACKETS = (
    "; in brackets: all of what is sent hidden, and nothing, with custom calls at"
    f" {LEAST} to {MOST} times their limit"
)
NOT_COMPILED = (
    "; slices without GiB were not compiled: they may not fit, and their hours, which follow from"
    " another's, leave out what any instruction takes however few rows it has, so that large ones"
    " look faster than they are"
)


def describe(values: dict) -> str:
    mesh = " ".join(f"{axis}={size}" for axis, size in values["mesh"].items())
    lines = [
        f"{values['topology']} ({values['accelerator_type']}): chips {values['chips']}, hosts"
        f" {values['hosts']}, mesh {mesh}; {values['parameters']:,} parameters,"
        f" {values['encoder_parameters']:,} of the encoder; {values['dtype']}"
    ]
    for name, phase in values["phases"].items():
        lines += describe_phase(name, phase, values["memory_per_chip"])
    if "hours" in values:  # all phases fit
        cost = f", cost {between(values, 'cost')}" if values["cost"] is not None else ""
        lines.append(f"together: {between(values, 'hours')} hours{cost}")
    return "\n".join([*lines, SOURCES + BRACKETS])


def describe_phase(name: str, phase: dict, memory: float) -> list[str]:
    if "reason" in phase:
        return [f"{name}: does not fit, {phase['reason']}; {phase['advice']}"]
    seconds = phase["seconds_sending_by_kind"]
    sent = [
        f"{kind} {digits(count / 1e6)} MB {digits(seconds[kind])} s"
        for kind, count in phase["sent_per_chip"].items()
    ]
    calls = phase["seconds_of_custom_calls"]
    called = f" ({digits(calls)} s custom calls: attention {phase['attention']})" if calls else ""
    fits = "fits" if phase["fits"] else "may not fit"
    return [
        f"{name}: {fits}, {gib(phase['bytes_per_chip'])} of {gib(memory)} GiB a chip"
        f" ({gib(phase['bytes_of_arguments'])} state and rows, {gib(phase['bytes_of_temporaries'])}"
        f" temporaries, {gib(phase['bytes_of_program'])} program)",
        f"  computing {digits(phase['seconds_computing'])} s{called},"
        f" sending {digits(phase['seconds_sending'])} s ({', '.join(sent) or 'nothing'}),"
        f" of which hidden {digits(phase['seconds_hidden'])} s",
        f"  {between(phase, 'seconds_per_step')} s a step,"
        f" {between(phase, 'rows_per_second')} rows/s",
        f"  {between(phase, 'tokens_per_second')} tokens/s, rows {phase['real_token_share']:.0%} full"
        f" (by {phase['real_token_share_from']})",
        f"  utilization {between(phase, 'utilization')}; {between(phase, 'hours')} hours for"
        f" {phase['steps']:,} steps; planned in {phase['seconds_planning']:.1f} s",
    ]


def gib(count: float) -> str:
    """As memories are told, and as the compiler tells what it needs of them."""
    return f"{count / chips.GIB:.2f}"


def digits(number: float) -> str:
    """Three that count, or all before the point: plans are of seconds and of years, of a demo and of large models."""
    return f"{number:,.0f}" if number >= 100 else f"{float(f'{number:.3g}'):,g}"


def between(values: dict, key: str) -> str:
    """A number, and the range in which it is."""
    ends = sorted(values[f"{key}{end}"] for end in (ALL_HIDDEN, NONE_HIDDEN))
    number, least, most = map(digits, (values[key], *ends))
    return number if least == most else f"{number} ({least} to {most})"


def describe_all(values: dict) -> str:
    lines = ["topology    accelerator     chips     hours  chip-hours        cost  GiB a chip"]
    for one in values["slices"]:
        cost = "-" if one["cost"] is None else digits(one["cost"])
        numbers = f"{digits(one['hours']):>9} {digits(one['chip_hours']):>11} {cost:>11}"
        name = f"{one['topology']:<11} {one['accelerator_type']:<14} {one['chips']:>6}"
        lines.append(f"{name} {numbers}  {describe_memory(one)}".rstrip())
    lines += [f"left out: {name}: {reason}" for name, reason in values["left_out"].items()]
    return "\n".join([*lines, SOURCES + NOT_COMPILED])


def describe_memory(one: dict) -> str:
    if one["bytes_per_chip"] is None:
        return f"does not fit: {one['reason']}" if "reason" in one else ""
    held = f"{gib(one['bytes_per_chip'])} of {gib(one['memory_per_chip'])}"
    return held if one["fits"] else f"{held}, does not fit"


def describe_search(values: dict) -> str:
    lines = []
    for name, table in values["phases"].items():
        lines.append(f"{name} on {values['topology']}, s a step, utilization, GiB a chip:")
        lines += [describe_row(row) for row in table]
    return "\n".join([*lines, SOURCES + BRACKETS])


def describe_row(row: dict) -> str:
    name = options(row["settings"]) or "the config as it is"
    if "reason" in row:
        return f"  {name}: {row['reason']}"
    held = f"{gib(row['bytes_per_chip']):>5}" + ("" if row["fits"] else ", may not fit")
    seconds = between(row, "seconds_per_step")
    return f"  {seconds}  {digits(row['utilization'])}  {held}  {name}"
