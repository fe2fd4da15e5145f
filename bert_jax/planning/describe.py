"""A plan for people; what the compiler estimates and what is arithmetic are told apart."""

from bert_jax.planning.estimate import LEAST, MOST


def describe(values: dict) -> str:
    mesh = " ".join(f"{axis}={size}" for axis, size in values["mesh"].items())
    hosts = f"{values['hosts']} host{'s' if values['hosts'] > 1 else ''}"
    lines = [
        f"{values['topology']} ({values['accelerator_type']}): {values['chips']} chips, {hosts}, mesh {mesh};"
        f" {values['parameters']:,} parameters, {values['dtype']}"
    ]
    for name, phase in values["phases"].items():
        lines += describe_phase(name, phase, values["memory_per_chip"])
    cost = f", cost {between(values, 'cost', ',.2f')}" if values["cost"] is not None else ""
    lines.append(f"all phases: {between(values, 'hours', ',.1f')} hours{cost}")
    lines.append(
        "bytes held, seconds of computing and what is hidden behind them are the compiler's; seconds of sending are"
        " arithmetic, bytes by the published bandwidth, and so are those of attention by splash, its instructions; in"
        " brackets: were all that is sent hidden, and nothing"
    )
    return "\n".join(lines)


def describe_phase(name: str, phase: dict, memory: float) -> list[str]:
    sent = [f"{kind} {count / 1e6:,.1f} MB" for kind, count in phase["sent_per_chip"].items()]
    kernels = phase["seconds_of_kernels"]
    return [
        f"{name}: fits, {phase['bytes_per_chip'] / 1e9:.2f} of {memory / 1e9:.2f} GB a chip"
        f" ({phase['bytes_of_arguments'] / 1e9:.2f} state and rows, {phase['bytes_of_temporaries'] / 1e9:.2f}"
        " temporaries)",
        f"  computing {phase['seconds_computing']:.4f} s, sending {phase['seconds_sending']:.4f} s"
        f" ({', '.join(sent) or 'nothing'}), of which hidden {phase['seconds_hidden']:.4f} s",
        *([f"  attention by {phase['attention']}: {kernels:.4f} s of computing"] * bool(kernels)),
        f"  {between(phase, 'seconds_per_step', '.4f')} s a step, {between(phase, 'rows_per_second', ',.0f')} rows/s",
        f"  {between(phase, 'tokens_per_second', ',.0f')} tokens/s of full rows",
        f"  utilization {between(phase, 'utilization', '.3f')}; {between(phase, 'hours', ',.1f')} hours for"
        f" {phase['steps']:,} steps",
    ]


def between(values: dict, key: str, form: str) -> str:
    number, *ends = (format(values[f"{key}{end}"], form) for end in ("", LEAST, MOST))
    return number if ends[0] == ends[1] else f"{number} ({ends[0]} to {ends[1]})"
