"""The utilization of the training step on TPU v5e slices, by the compiler's cycle estimates. Needs libtpu, but no TPU.

    python benchmarks/tpu.py [--only NAME ...] [--alone] [--config.KEY=VALUE ...]

Each case is compiled like in `bert-jax plan`, which takes minutes, and cached, so that a second run takes seconds. Some
cases are compared with the step of benchmarks/plain.py, on the same rows, compiled and counted for the same chips.

Utilization is useful FLOPs / (seconds x published peak FLOPs). It is computed for three times: the compiler's cycles
alone (estimated by arithmetic for custom calls, which have none); with communication as scheduled; and with
communication that does not overlap with computation. Prints a Markdown row for each case.
"""

import argparse
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

# Set before JAX is imported: libtpu only compiles here and has no devices.
os.environ["JAX_PLATFORMS"] = "cpu"

sys.path.append(str(Path(__file__).resolve().parents[1]))

import jax

from benchmarks import plain
from bert_jax import config
from bert_jax.errors import BadInput
from bert_jax.parallel import chips
from bert_jax.planning import compilation, plan, topology, tpus
from bert_jax.planning.compilation import Job, Step
from bert_jax.planning.estimate import ALL_HIDDEN, NONE_HIDDEN, estimate
from bert_jax.runs.out_of_memory import TooLarge


class Case(NamedTuple):
    """A step to compile."""

    title: str
    config: str
    phase: str
    slice: str
    rows: int  # per chip
    keys: tuple[str, ...] = ()  # overrides
    target: str = "-"
    plain: tuple[str, ...] = ()  # of plain.FORMS, to compare with
    others: str = ""  # published numbers to compare with


class Opened(NamedTuple):
    """A case that is ready to be compiled."""

    job: Job  # of one phase
    slice: tpus.Slice
    mesh: object


UNDROPPED = "model.attention_dropout=0.0"
ROWS_ALONE = "mesh.fsdp=1"  # as the plain step
PACKED = ("phases.long.max_packed=8", "phases.long.max_predictions=80", "mesh.fsdp=4")


def undropped(rows: int, *forms: str) -> Case:
    title = "BERT-base, length 128, without attention dropout"
    return Case(
        title, "bert_base", "short", "v5e:2x2", rows, (UNDROPPED, ROWS_ALONE), "0.54", forms
    )


def packed(variant: str, *keys: str) -> Case:
    others = "decoders on TPU v3 and v4: 0.35 to 0.57"
    title = f"BERT-large, length 512, packed, mesh.fsdp=4, {variant}"
    return Case(title, "bert_large", "long", "v5e:2x2", 8, PACKED + keys, "0.55", others=others)


def large(slice_: str) -> Case:
    return Case("BERT-large, length 128", "bert_large", "short", slice_, 32, (ROWS_ALONE,))


CASES = {
    "base": Case(
        "BERT-base, length 128, dropout as published",
        "bert_base",
        "short",
        "v5e:2x2",
        64,
        (ROWS_ALONE,),
        target="0.48",
        plain=plain.FORMS,
    ),
    "base-undropped-32": undropped(32),
    "base-undropped-64": undropped(64, "unrolled"),
    "base-undropped-128": undropped(128),
    "base-undropped-256": undropped(256, "unrolled"),
    "large-packed": packed("dropout as published"),
    "large-packed-undropped": packed("without attention dropout", UNDROPPED),
    "large-packed-splash": packed("the same by splash", UNDROPPED, "model.attention=splash"),
    "large-packed-xla": packed("the same by xla", UNDROPPED, "model.attention=xla"),
    "large-4": large("v5e:2x2"),
    "large-256": large("v5e:16x16"),
}
GROWTH = "large-4", "large-256"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=CASES, default=list(CASES), metavar="NAME")
    parser.epilog = f"names: {', '.join(CASES)}; {' and '.join(GROWTH)} give the growth, too"
    parser.add_argument("--alone", action="store_true", help="without the plain steps")
    options, overrides = parser.parse_known_args(arguments)
    # JAX's cache would keep programs that only a real TPU can load.
    jax.config.update("jax_enable_compilation_cache", False)
    results = {}
    try:
        for name in options.only:
            case = CASES[name]
            opened = open_case(case, overrides)
            forms = () if options.alone else case.plain
            results[name] = measure(opened)
            others = {form: measure_plain(opened, form) for form in forms}
            print(row(case, results[name], others), flush=True)
    except BadInput as error:
        print(f"tpu.py: {error}", file=sys.stderr)
        return 2
    if all(isinstance(results.get(name), dict) for name in GROWTH):
        print(growth(*(results[name] for name in GROWTH)))
    return 0


def open_case(case: Case, overrides: list[str]) -> Opened:
    unknown = [key for key in overrides if not key.startswith("--config.")]
    if unknown:
        raise BadInput(f"{unknown[0]}: unknown option; see --help")
    one = topology.find(case.slice)
    rows = f"phases.{case.phase}.batch={case.rows * one.chips}"
    keys = [*case.keys, rows, *(key.removeprefix("--config.") for key in overrides)]
    job = plan.make_job(config.load(case.config, keys), case.phase, log)
    return Opened(job, one, compilation.make_mesh(job, one))


def measure(opened: Opened) -> dict | TooLarge:
    """Returns the estimates of `bert-jax plan` for the phase, or TooLarge if the step does not fit."""
    return numbers(opened, lambda: compilation.compile_step(*opened, opened.job.phases[0]))


def measure_plain(opened: Opened, form: str) -> dict | TooLarge:
    """Returns the same for the plain step."""
    job, _, mesh = opened
    lowered = plain.lower(job.config, mesh, job.phases[0], job.vocabulary.size, form)

    def compiled() -> Step:
        log(f"compiling the plain step, {form}")
        return compilation.compile_lowered(lowered, mesh)

    return numbers(
        opened, lambda: compilation.read_or_compile(job, lowered.as_text(), mesh, compiled)
    )


def numbers(opened: Opened, compiled: Callable[[], Step]) -> dict | TooLarge:
    try:
        values = estimate(*opened, opened.job.phases[0], compiled())
    except TooLarge as error:
        return error
    peak = opened.slice.chips * opened.slice.chip.flops
    return values | {"by_cycles": values["flops_per_step"] / values["seconds_computing"] / peak}


def log(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def row(case: Case, values: dict | TooLarge, others: dict[str, dict | TooLarge]) -> str:
    """Returns the Markdown row of a case. others: {form: estimates of the plain step}."""
    title = f"{case.slice}, {case.title}, {case.rows} rows per chip"
    plain_steps = [f"plain Linen, {form}: {brief(others[form])}" for form in others]
    reference = "; ".join(filter(None, [*plain_steps, case.others]))
    if isinstance(values, TooLarge):
        return f"| {title} | {case.target} | does not fit: {values} | {reference} |"
    calls = values["seconds_by_roofline"]
    counted = f" and arithmetic for custom calls ({calls:.4f} s)" if calls else ""
    return (
        f"| {title} | {case.target} | **{values['by_cycles']:.3f}** by cycles{counted}"
        f" ({values['seconds_computing']:.4f} s); as scheduled {values['utilization']:.3f}, nothing hidden"
        f" {values[f'utilization{NONE_HIDDEN}']:.3f}; {values['bytes_per_chip'] / chips.GIB:.1f} GiB | {reference} |"
    )


def brief(values: dict | TooLarge) -> str:
    if isinstance(values, TooLarge):
        return f"does not fit, {values}"
    return (
        f"**{values['by_cycles']:.3f}** by cycles ({values['seconds_computing']:.4f} s), as scheduled"
        f" {values['utilization']:.3f}; {values['bytes_per_chip'] / chips.GIB:.1f} GiB"
    )


def growth(few: dict, many: dict) -> str:
    """Returns the row of how seconds per step grow: with all communication hidden, as scheduled, with none hidden."""
    parts = []
    for end, name in (
        (ALL_HIDDEN, "all hidden"),
        ("", "as scheduled"),
        (NONE_HIDDEN, "nothing hidden"),
    ):
        a, b = (values[f"seconds_per_step{end}"] for values in (few, many))
        parts.append(f"{name} {a:.4f} -> {b:.4f} s (**{100 * (b / a - 1):+.1f} %**)")
    title = f"{CASES[GROWTH[0]].title}, {CASES[GROWTH[0]].rows} rows per chip, seconds per step"
    targets = "5 % or less all hidden, 25 % nothing hidden"
    return f"| v5e, 4 -> 256 chips, {title} | {targets} | {'; '.join(parts)} | |"


if __name__ == "__main__":
    sys.exit(main())
