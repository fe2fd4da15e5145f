"""Measures a GPU or TPU and prints a Markdown page: the numbers that a CPU cannot give.

    python benchmarks/accelerator.py [--config bert_base] [--tokens 8192] [--steps 400] [--only PART ...]
        [--topology v5e:2x2] [--config.KEY=VALUE ...] > accelerator.md

- speed: seconds a step of each phase, beside transformers on PyTorch (extra `parity`), or on a TPU beside `plan` for
  the slice --topology (extra `plan`).
- kernels: each attention kernel of the device beside `xla`: differences from float32, and seconds.
- resume: the demo trained for --steps steps, and again with SIGKILL in the middle and a restart: the same bits?
- bfloat16: losses of the demo in bfloat16 beside float32 with the same seed and with another one.

--tokens is per device, and --config.KEY=VALUE sets keys of the measured config. Every program runs in its own process,
as a user would start it, so that none holds the devices of the next. On a machine without accelerators the page is the
CPU's, with `xla` as the only kernel.
"""

import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from bert_jax import config as configs
from bert_jax.cli import Parser, positive, split_overrides
from bert_jax.errors import BadInput
from bert_jax.parallel.chips import TPUS, has_device

EVERY = 50  # steps between two lines of metrics.jsonl, of the config `demo`
ROWS, HEADS, SIZE = 32, 12, 64  # of the kernels' inputs: BERT-base
PACKED = (512, 0.0, 4), (1024, 0.0, 8)
CASES = *itertools.product((128, 512), (0.0, 0.1), (1,)), *PACKED  # length, dropout, sequences


def main(arguments: list[str] | None = None) -> int:
    parser = Parser(description=__doc__.splitlines()[0])
    parser.add_argument("--config", default="bert_base")
    parser.add_argument("--tokens", type=positive, default=8192, help="per device and step")
    parser.add_argument("--steps", type=positive, default=400, help="of the demo's runs")
    parser.add_argument("--topology", help="the slice of a TPU, as for `bert-jax plan`")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--in-process", action="store_true", help="for one part, in this process")
    try:
        words, overrides = split_overrides(sys.argv[1:] if arguments is None else arguments)
        options = parser.parse_args(words)
        keys = [f"train.tokens_per_device={options.tokens}", *overrides]
        if has_device(TPUS) and "speed" in options.only and not options.topology:
            raise BadInput("--topology: is needed on a TPU; the slice's name, such as v5e:2x2")
        options.phases = configs.load(options.config, keys).phase_order
        options.keys = [f"--config.{key}" for key in keys]
        with tempfile.TemporaryDirectory() as scratch:
            for name in options.only:
                title = [] if options.in_process else [f"\n## {name}\n"]
                print("\n".join([*title, *PARTS[name](options, Path(scratch))]), flush=True)
    except BadInput as error:
        print(f"accelerator.py: {error}", file=sys.stderr)
        return 2
    return 0


def run(*command, **variables) -> str:
    """Runs a command of this Python and returns its standard output. Raises BadInput if it fails."""
    process = subprocess.run(
        [sys.executable, *map(str, command)],
        env=os.environ | variables, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    if process.returncode:
        raise BadInput(f"{' '.join(map(str, command))}: exit code {process.returncode}")
    return process.stdout


def bert_jax(*arguments, **variables) -> str:
    return run("-m", "bert_jax", *arguments, **variables)


# --- Steps ----------------------------------------------------------------------------------------


def speed(options, scratch: Path) -> list[str]:
    job = ["--config", options.config, *options.keys]
    values = json.loads(bert_jax("benchmark", *job, "--json", "-"))
    devices = Counter(values["devices"])
    kinds = ", ".join(f"{count} x {kind}" for kind, count in devices.items())
    lines = [
        f"{options.config} on {kinds}, {values['dtype']}, {options.tokens} tokens a device at a time.\n",
        "| phase | rows a step | s a step | tokens/s | share of the peak | attention |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for name, phase in values["phases"].items():
        rows = phase["rows_per_second"] * phase["step_seconds"]
        lines.append(
            f"| {name} | {rows:.0f} | {phase['step_seconds']:.4g} | {phase['tokens_per_second']:,.0f}"
            f" | {phase['utilization'] or 'unknown'} | {phase['attention']} |"
        )
    if any(kind.startswith("TPU") for kind in devices):
        return lines + planned(options, job)
    device = "cpu" if set(devices) == {"cpu"} else "cuda"
    return lines + ["\nOne device, beside PyTorch:\n", *beside_pytorch(options, device)]


def planned(options, job: list[str]) -> list[str]:
    text = bert_jax("plan", *job, "--topology", options.topology, "--json", "-")
    phases = json.loads(text)["phases"].items()
    return [f"\n`plan` for {options.topology}:\n"] + [
        f"- {name}: {phase.get('reason') or '{seconds_per_step:.4g} s a step'.format(**phase)}"
        for name, phase in phases
    ]


def beside_pytorch(options, device: str) -> list[str]:
    """Returns the rows of step.py for the length of each phase."""
    settings = configs.load(options.config, [key.removeprefix("--config.") for key in options.keys])
    rows = ["| step | target | ours | transformers on PyTorch |", "| --- | --- | --- | --- |"]
    for name in options.phases:
        phase = settings.phases[name]
        keys = [
            f"--config.phases.short.{key}={phase[key]}" for key in ("length", "max_predictions")
        ]
        keys += [key for key in options.keys if not key.startswith("--config.phases.")]
        shape = f"{options.config}:{options.tokens // phase.length}"
        dtype = settings.dtype
        if dtype == "auto":
            dtype = "float32" if device == "cpu" else "bfloat16"
        side = ["--device", device, "--shapes", shape, f"--config.dtype={dtype}", *keys]
        rows.append(run(Path(__file__).with_name("step.py"), *side).strip())
    return rows


# --- Attention kernels ----------------------------------------------------------------------------


def kernels(options, scratch: Path) -> list[str]:
    if not options.in_process:  # the devices are free again when that process ends
        command = ["--config", options.config, "--only", "kernels", "--in-process"]
        return [run(__file__, *command).strip()]
    from bert_jax.layers import attention
    from bert_jax.layers.attention_spec import Spec

    kind, names = attention.device_and_kernels()
    rows = [
        f"{kind}: forward and backward pass, bfloat16, {ROWS} rows, {HEADS} heads of {SIZE}. Errors: the largest"
        " difference from `xla` in float32, over the largest value, of outputs and gradients.\n",
        "| kernel | length | sequences | dropout | ms | errors: output; gradients by q, k, v |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for length, dropout, sequences in CASES:
        case = attention.Case(kind, names, length, HEADS, "bfloat16")
        for name in ("xla", *names):
            spec = Spec(name, SIZE, dropout=dropout, sequences=sequences)
            if not list(attention.refusals(name, spec, case)):
                seconds, errors = compare_kernel(spec, length)
                text = ", ".join(f"{error:.2g}" for error in errors)
                row = name, length, sequences, dropout, f"{1e3 * seconds:.3f}", text
                rows.append(f"| {' | '.join(map(str, row))} |")
    return rows


def compare_kernel(spec, length: int, turns=20) -> tuple:
    """Returns the median seconds of both passes of the kernel of a Spec, and its errors: output, gradients by q, k and
    v."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    from bert_jax.layers import attention
    from bert_jax.layers.attention_spec import Mask

    draw = np.random.default_rng(0)
    q, k, v, weights = draw.normal(size=(4, ROWS, length, HEADS, SIZE)).astype(np.float32)
    real = np.arange(length) < draw.integers(length // 4, length, (ROWS, 1), endpoint=True)
    number = 1 + np.arange(length) * spec.sequences // length
    weights *= real[..., None, None]  # what a padding token attends to is free
    keys = jnp.arange(ROWS, dtype=jnp.uint32)
    vectors = [jnp.asarray(x, jnp.bfloat16) for x in (q * SIZE**-0.5, k, v)]

    def passes(spec, dtype):
        def value(*vectors):
            mask = Mask(jnp.asarray(real * number, jnp.int32))
            output = attention.attend(spec, mask, *vectors, keys)
            output = output.astype(jnp.float32)
            return jnp.sum(output * weights), output * (weights != 0)

        program = jax.jit(jax.value_and_grad(value, (0, 1, 2), has_aux=True))
        return lambda: jax.block_until_ready(program(*(x.astype(dtype) for x in vectors)))

    with jax.default_matmul_precision("highest"):
        exact = jax.tree.leaves(passes(spec._replace(implementation="xla"), jnp.float32)())[1:]
    call = passes(spec, jnp.bfloat16)
    results = jax.tree.leaves(call())[1:]
    seconds = []
    for _ in range(turns):
        start = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - start)
    pairs = zip(results, exact, strict=True)
    errors = [float(jnp.max(jnp.abs(a - b)) / jnp.max(jnp.abs(b))) for a, b in pairs]
    return statistics.median(seconds), errors


# --- Runs of the demo -----------------------------------------------------------------------------


def demo(options, scratch: Path, name: str, *keys: str) -> list:
    """Returns the command of a run of the demo in the workdir scratch/name."""
    steps = options.steps
    keys = (
        "store=" + str(scratch / "store"),
        f"phases.main.steps={steps}",
        "schedule.warmup=50",
        *keys,
    )
    often = f"checkpoint.every={EVERY}", f"evaluate.every={steps}", f"log.every={EVERY}"
    overrides = [f"--config.{key}" for key in (*keys, *often)]
    return ["pretrain", "--config", "demo", "--workdir", scratch / name, *overrides]


def resume(options, scratch: Path) -> list[str]:
    """Kills a run after its first checkpoints, starts it again, and compares it with an undisturbed one."""
    from bert_jax.checkpoints import reader
    from bert_jax.runs import metrics_file

    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_gpu_deterministic_ops=true".strip()
    bert_jax(*demo(options, scratch, "whole"), XLA_FLAGS=flags)
    command = [sys.executable, "-m", "bert_jax", *map(str, demo(options, scratch, "killed"))]
    checkpoints = scratch / "killed/checkpoints"
    with subprocess.Popen(
        command, env=os.environ | {"XLA_FLAGS": flags}, stdout=subprocess.DEVNULL
    ) as process:
        while process.poll() is None and not reader.steps(checkpoints):
            time.sleep(0.1)
        process.kill()
    steps = reader.steps(checkpoints)
    if process.returncode > 0:
        raise BadInput(f"{' '.join(command)}: exit code {process.returncode}")
    if process.returncode == 0 or steps[-1:] == [options.steps]:
        raise BadInput(
            f"--steps {options.steps}: the run ended before it could be killed; take more"
        )
    bert_jax(*demo(options, scratch, "killed"), XLA_FLAGS=flags)
    ends = [scratch / side / "checkpoints" / str(options.steps) for side in ("whole", "killed")]
    expected, resumed = (reader.read_manifest(end) for end in ends)
    different = sorted(name for name in expected if expected[name] != resumed.get(name))
    losses = [
        [(row["step"], row["loss"]) for row in metrics_file.lines(scratch / side / "metrics.jsonl")]
        for side in ("whole", "killed")
    ]
    return [
        f"Killed with checkpoints of steps {steps}, started again, and trained to step {options.steps}:"
        f" {len(different)} of {len(expected)} arrays of parameters and optimizer differ ({different[:3]});"
        f" losses of the log {'equal' if losses[0] == losses[1] else 'differ'}."
    ]


def bfloat16(options, scratch: Path) -> list[str]:
    from bert_jax.runs import metrics_file

    runs = {
        "float32": ("dtype=float32",),
        "bfloat16": ("dtype=bfloat16",),
        "float32, another seed": ("dtype=float32", "seed=1"),
    }
    losses = {}
    for number, (name, keys) in enumerate(runs.items()):
        bert_jax(*demo(options, scratch, f"dtype{number}", *keys))
        lines = metrics_file.lines(scratch / f"dtype{number}/metrics.jsonl")
        losses[name] = {row["step"]: row["loss"] for row in lines if row["split"] == "train"}
    steps = list(losses["float32"])
    header = f"| step | {' | '.join(losses)} |", "| --- " * (1 + len(losses)) + "|"
    rows = [
        f"| {step} | {' | '.join(f'{of_run[step]:.4f}' for of_run in losses.values())} |"
        for step in steps
    ]
    gaps = [
        max(abs(losses[name][step] - losses["float32"][step]) for step in steps)
        for name in list(losses)[1:]
    ]
    return [
        "Training losses of the demo, each the mean of the steps since the line before.\n",
        *header,
        *rows,
        f"\nLargest difference from float32: {gaps[0]:.4f} by bfloat16, {gaps[1]:.4f} by another seed.",
    ]


PARTS = {
    "speed": speed,
    "kernels": kernels,
    "resume": resume,
    "bfloat16": bfloat16,
}


if __name__ == "__main__":
    sys.exit(main())
