"""The training step on one GPU, by XLA's compiler, without a GPU: memory, bytes moved, roofline, kernels.

    python benchmarks/gpu.py [--only NAME ...] [--topology h100:1] [--defaults] [--json FILE] [--config.KEY=VALUE ...]

Needs the extra `plan-gpu`, and for cudnn the extra `gpu`. Prints a Markdown row for each case. --defaults compiles with
XLA's own flags instead of those that bert_jax sets (bert_jax/runs/environment.py).
bert_jax/planning/gpu_operations.py counts the bytes. A GPU compiles and tunes each distinct kernel once: two kernels
are the same if only names differ.
"""

import json
import os
import re
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

# Set before JAX is imported: its compiler alone is used.
os.environ["JAX_PLATFORMS"] = "cpu"

sys.path.append(str(Path(__file__).resolve().parents[1]))

from bert_jax.cli import Parser, split_overrides
from bert_jax.errors import BadInput
from bert_jax.runs import environment


class Case(NamedTuple):
    """A step to compile."""

    config: str
    phase: str
    rows: int
    keys: tuple[str, ...] = ()  # overrides


CUDNN = "model.attention=cudnn", "model.attention_dropout=0.0"
LARGE = ("train.tokens_per_device=65536",)
CASES = {
    "bert_base-128": Case("bert_base", "short", 256),
    "bert_base-128-cudnn": Case("bert_base", "short", 256, CUDNN),
    "bert_base-512": Case("bert_base", "long", 64),
    "bert_base-512-cudnn": Case("bert_base", "long", 64, CUDNN),
    "modern_base-1024": Case("modern_base", "batch768", 64, (*LARGE, "model.attention=xla")),
    "modern_base-1024-cudnn": Case("modern_base", "batch768", 64, LARGE),
    "transformer_base-256": Case("transformer_base", "main", 96, ("model.attention=xla",)),
}
HEAD = (
    "| step | GiB | GB moved | GB in products | TFLOP | roofline, ms | compilation, s of a CPU |"
    " kernels: all, distinct |"
)
RENAMED = re.compile(r"%[\w.\-]+")
DETAILS = re.compile(r", (metadata|backend_config)=\{.*")


def main(arguments: list[str] | None = None) -> int:
    parser = Parser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=CASES, default=list(CASES), metavar="NAME")
    parser.epilog = f"names: {', '.join(CASES)}"
    parser.add_argument("--topology", default="h100:1", help="as for `bert-jax plan`")
    parser.add_argument("--defaults", action="store_true", help="with XLA's own flags")
    parser.add_argument("--json", type=Path, help="also writes the numbers to this file")
    values = {}
    try:
        words, overrides = split_overrides(sys.argv[1:] if arguments is None else arguments)
        options = parser.parse_args(words)
        if not options.defaults:
            os.environ |= environment.gpu_flags()
        environment.find_gpu_compiler()  # XLA reads its flags now, and ignores what is set later
        print(HEAD, "| --- " * 8 + "|", sep="\n")
        for name in options.only:
            values[name] = measure(CASES[name], options.topology, overrides)
            print(row(name, values[name]), flush=True)
    except BadInput as error:
        print(f"gpu.py: {error}", file=sys.stderr)
        return 2
    if options.json:
        options.json.write_text(json.dumps(values, indent=1) + "\n")
    return 0


def measure(case: Case, topology_name: str, overrides: list[str]) -> dict:
    """Compiles the step of a case and returns its numbers, of one device. overrides: KEY=VALUE."""
    import jax

    from bert_jax import config as configs
    from bert_jax.planning import compilation, hlo, plan, timeline, topology

    jax.config.update("jax_enable_compilation_cache", False)
    target = topology.find(topology_name)
    rows = f"phases.{case.phase}.batch={case.rows * target.chips}"
    keys = [*case.keys, rows, *overrides]
    job = plan.make_job(configs.load(case.config, keys), case.phase, print)
    mesh = compilation.make_mesh(job, target)
    lowered = compilation.lower(job, mesh, job.phases[0])
    start = time.process_time()
    compiled = lowered.compile()
    seconds = time.process_time() - start
    text = compiled.as_text()
    events = timeline.read(text, mesh)
    operations = [
        (times, event[2], event[3])
        for event, times in timeline.walk(events)
        if event[0] == "roofline"
    ]
    return {
        "memory": hlo.memory(compiled).total,
        "moved": sum(times * size for times, _, size in operations),
        "moved_by_products": sum(times * size for times, flops, size in operations if flops),
        "flops": sum(times * flops for times, flops, _ in operations),
        "roofline": timeline.cycles(events) / target.factors.likely / target.chip.hertz,
        "compile_seconds": seconds,
        "kernels": count_kernels(text),
    }


def count_kernels(text: str) -> dict[str, list[int]]:
    """Returns {kind: [number of kernels, number of distinct ones]} of fusions and library calls."""
    from bert_jax.planning import hlo

    computations, _ = hlo.computations(text)
    fused = set(re.findall(r"calls=%([\w.\-]+)", text))
    kernels = defaultdict(list)
    for name in computations.keys() - fused:
        body = computations[name]
        for op in body:
            if op.opcode == "fusion":
                kernels[kind_of(op)].append(rename(op.called("calls"), computations))
            elif op.target:
                shapes = [str(part.results) for part in body if part.name in op.operands]
                kernels[op.target].append((op.results, *shapes))
    return {kind: [len(texts), len(set(texts))] for kind, texts in sorted(kernels.items())}


def kind_of(fusion) -> str:
    """Returns the compiler of a fusion, such as __triton, or else its kind, such as kLoop."""
    backend = re.search(r'"kind":"(\w+)"', fusion.text)
    return backend[1] if backend else fusion.called("kind")


def rename(name: str, computations: dict) -> str:
    """Returns the text of a computation and of those it calls, with names by their order."""
    numbers = {}
    lines = []
    for op in computations[name]:
        called = rename(op.called("calls"), computations) if op.opcode == "fusion" else ""
        line = f"%{op.name} = {op.results} {op.opcode}({DETAILS.sub('', op.text)}"
        line = RENAMED.sub(lambda match: f"%{numbers.setdefault(match[0], len(numbers))}", line)
        lines.append(re.sub(r"calls=%\d+", called, line))
    return "\n".join(lines)


def row(name: str, values: dict) -> str:
    kernels = "; ".join(
        f"{kind} {count}, {distinct}" for kind, (count, distinct) in values["kernels"].items()
    )
    return (
        f"| {name} | {values['memory'] / 2**30:.1f} | {values['moved'] / 1e9:.1f}"
        f" | {values['moved_by_products'] / 1e9:.1f} | {values['flops'] / 1e12:.2f}"
        f" | {1e3 * values['roofline']:.1f} | {values['compile_seconds']:.0f} | {kernels} |"
    )


if __name__ == "__main__":
    sys.exit(main())
