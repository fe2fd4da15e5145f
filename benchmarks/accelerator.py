"""Measures a GPU or TPU and writes a Markdown page: the numbers that a CPU cannot give.

    python benchmarks/accelerator.py [--output accelerator.md] [--minutes 12] [--only PART ...]
        [--shapes CONFIG:PHASE ...] [--tokens N] [--topology h100:1] [--config.KEY=VALUE ...]

Each number is appended to --output as soon as it is there, so that a machine that is taken away leaves what was
measured. After --minutes the rest is left out, and the page says so. The most important parts come first:

- speed: the step of --shapes, as one batch of --tokens tokens a device (default: 32,768 of BERT, 16,384 of others).
  Each is started twice: with an empty compilation cache, and with what the first start left in it.
- kernels: each attention kernel of the device beside `xla`, by attention_kernels.py.
- resume: the demo trained for --steps steps, and again with SIGKILL in the middle and a restart: the same bits?
- bfloat16: losses of the demo in bfloat16 beside float32 with the same seed and with another one.
- profile: the operations of these steps that take most of the devices' time.
- pytorch: steps of 8,192 tokens, or --tokens, beside transformers on PyTorch (extra `parity`), by step.py.
- plan: the steps of `speed` beside `bert-jax plan` (extra `plan` for TPUs, `plan-gpu` for GPUs), which computes with
  the lowest priority while the parts after `speed` run. On a TPU it needs --topology.

Every program runs in its own process, as a user would start it, so that none holds the devices of the next; what they
print to standard error is appended to OUTPUT.log. If one fails, its row says why, and the others follow.
--config.KEY=VALUE sets keys of the measured configs. On a machine without accelerators the page is the CPU's, with
`xla` as the only kernel.
"""

import argparse
import itertools
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter, defaultdict
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

sys.path.append(str(Path(__file__).resolve().parents[1]))

from benchmarks.tables import describe_machine  # noqa: E402
from bert_jax import config as configs  # noqa: E402
from bert_jax.cli import Parser, positive, split_overrides, to_path  # noqa: E402
from bert_jax.errors import BadInput, one_line  # noqa: E402
from bert_jax.parallel.cards import CARDS  # noqa: E402
from bert_jax.parallel.chips import GIB  # noqa: E402
from bert_jax.runs import environment  # noqa: E402

SHAPES = "bert_base:short", "modern_base:short", "bert_base:long", "modern_base:long"
TOKENS = {"bert": 32_768, "modernbert": 16_384}  # a device and step, by model
STARTS = "empty", "filled"  # compilation caches
WARM_UP = 2  # steps that `benchmark` does not time
STEPS = 50  # that it times
TRACED = 5  # that it traces
COSTS = 5  # rows of a profile
TORCH_TOKENS = 8192  # of a step beside PyTorch, where three processes share the device
EVERY = 50  # steps between two lines of metrics.jsonl, of the config `demo`
LATE = "the minutes are over"
MESSAGE = re.compile(
    r"^(?!\s*@|\*\*\*|https?:)(.*\S)", re.MULTILINE
)  # no line of a native stack trace
DEVICES = """
import json, jax
devices = jax.devices()
version = " ".join(devices[0].client.platform_version.split())
print(json.dumps([devices[0].platform, version, [device.device_kind for device in devices]]))
"""

# {planes of a trace: their lines that have operations}, by prefixes. A GPU's other lines are sums of its streams.
TRACES = {"/device:GPU": "Stream", "/device:TPU": "XLA Ops", "/host:CPU": "tf_XLA"}


class Shape(NamedTuple):
    """A step to measure."""

    name: str  # CONFIG:PHASE
    settings: object  # the config
    phase: str
    rows: int  # a device
    overrides: list[str]

    @property
    def length(self) -> int:
        return self.settings.phases[self.phase].length


class Session(NamedTuple):
    """A page, and what its parts share."""

    options: argparse.Namespace
    deadline: float  # in seconds of time.monotonic()
    scratch: Path
    platform: str  # cpu, gpu or tpu
    kinds: list[str]  # of the devices
    shapes: list[Shape]
    measured: dict[str, dict]  # values of `benchmark` by the name of the shape
    predicted: dict[str, Future]  # values of `plan` by the name of the shape

    def write(self, *lines: str) -> None:
        write(self.options.output, *lines)

    def run(self, *command, **variables) -> str:
        log = Path(f"{self.options.output}.log")
        return run(*command, deadline=self.deadline, log=log, **variables)

    def job(self, shape: Shape) -> list[str]:
        """Returns the arguments of `bert-jax benchmark` and `plan` for a shape."""
        rows = f"phases.{shape.phase}.batch={shape.rows * len(self.kinds)}"
        keys = [rows, "train.tokens_per_device=0", *shape.overrides]
        config, _, _ = shape.name.partition(":")
        return ["--config", config, "--phase", shape.phase, *(f"--config.{key}" for key in keys)]


def main(arguments: list[str] | None = None) -> int:
    begin = time.monotonic()
    parser = Parser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=to_path, default="accelerator.md", help="the page")
    parser.add_argument("--minutes", type=positive, default=12)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--shapes", nargs="+", default=SHAPES, metavar="CONFIG:PHASE")
    parser.add_argument("--tokens", type=positive, help="per device and step")
    parser.add_argument("--steps", type=positive, default=400, help="of the demo's runs")
    parser.add_argument("--topology", help="the devices' name for `bert-jax plan`")
    try:
        words, overrides = split_overrides(sys.argv[1:] if arguments is None else arguments)
        options = parser.parse_args(words)
        shapes = [load(name, options.tokens, overrides) for name in options.shapes]
        measure(options, begin + 60 * options.minutes, shapes)
    except BadInput as error:
        print(f"accelerator.py: {error}", file=sys.stderr)
        return 2
    print(f"accelerator.py: {options.output}: {time.monotonic() - begin:.0f} s", file=sys.stderr)
    return 0


def load(name: str, tokens: int | None, overrides: list[str]) -> Shape:
    """Returns the shape CONFIG:PHASE with `tokens` tokens a device, by default those of its model."""
    config, _, phase = name.partition(":")
    settings = configs.load(config, overrides)
    if phase not in settings.phase_order:
        names = ", ".join(settings.phase_order)
        raise BadInput(f"--shapes {name}: expected CONFIG:PHASE with a phase of {names}")
    tokens = tokens or TOKENS.get(settings.model.name, min(TOKENS.values()))
    rows = max(1, tokens // settings.phases[phase].length)
    return Shape(name, settings, phase, rows, overrides)


def measure(options, deadline: float, shapes: list[Shape]) -> None:
    """Writes the page. Raises BadInput if there are no devices or the page cannot be written."""
    log = Path(f"{options.output}.log")
    machine = describe_machine()
    write(log, machine)
    platform, version, kinds = json.loads(run("-c", DEVICES, deadline=deadline, log=log))
    devices = ", ".join(f"{number} x {kind}" for kind, number in Counter(kinds).items())
    flags = (os.environ | environment.gpu_variables()).get("XLA_FLAGS") or "none"
    write(options.output, f"\n# {devices}\n", f"{machine} {version}; XLA's flags: {flags}.")
    with tempfile.TemporaryDirectory() as scratch, ThreadPoolExecutor(1) as background:
        session = Session(options, deadline, Path(scratch), platform, kinds, shapes, {}, {})
        for name in options.only:
            # Compilation in the background would make the starts slower that `speed` measures.
            if "plan" in options.only and name != "speed" and not session.predicted:
                for shape in shapes:
                    session.predicted[shape.name] = background.submit(predict, session, shape)
            print(f"accelerator.py: {name}", file=sys.stderr, flush=True)
            session.write(f"\n## {name}\n")
            try:
                PARTS[name](session)
            except BadInput as error:
                session.write(f"\n{name}: {error}")
            except Exception as error:  # the other parts follow
                traceback.print_exc()
                session.write(f"\n{name}: {one_line(error)}")


def run(
    *command, deadline: float, log: Path, before=(), stdout=subprocess.PIPE, **variables
) -> str:
    """Runs a command of this Python and returns its standard output; appends the command and its standard error to the
    log.

    deadline: when it is killed, in seconds of time.monotonic().
    before: words before the command, such as those of `nice`.

    Raises BadInput if it fails, with the last message of its standard error.
    """
    seconds = deadline - time.monotonic()
    if seconds <= 0:
        raise BadInput(f"left out: {LATE}")
    words = list(map(str, command))
    with log.open("a+", encoding="utf-8", errors="replace") as errors:
        print("$", *words, file=errors, flush=True)
        begin = errors.tell()
        try:
            process = subprocess.run(
                [*before, sys.executable, *words],
                env=os.environ | variables, stdout=stdout, stderr=errors,
                text=True, timeout=seconds,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise BadInput(f"not finished: {LATE}") from None
        if process.returncode:
            errors.seek(begin)
            *_, reason = ["", *MESSAGE.findall(errors.read())]
            raise BadInput(f"exit code {process.returncode}: {reason[:300]}")
    return process.stdout


def write(page: Path, *lines: str) -> None:
    """Appends lines to the page."""
    try:
        with page.open("a", encoding="utf-8") as file:
            print(*lines, sep="\n", file=file)
    except OSError as error:
        raise BadInput(f"--output {page}: {error.strerror}") from None


def row(*cells) -> str:
    """Returns a row of a Markdown table."""
    return f"| {' | '.join(str(cell).replace('|', '/') for cell in cells)} |"


def header(*cells: str) -> str:
    return f"\n{row(*cells)}\n{row(*('---' for _ in cells))}"


# --- Steps ----------------------------------------------------------------------------------------


def speed(session: Session) -> None:
    session.write(
        "256 x 128: 256 rows a device of length 128. They are chosen for cards from 40 GB on; --tokens sets others."
        " `cache`: the compilation cache at the start. `started in`: seconds of the process without its steps, nearly"
        f" all before the first one. `s a step`: the median of {STEPS}. MFU: FLOPs a second over the published peak.",
        header(
            "step", "cache", "started in, s", "compiled in, s", "s a step", "slowest", "tokens/s",
            "MFU", "GiB a device", "attention",
        ),
    )  # fmt: skip
    for shape, start in itertools.product(session.shapes, STARTS):
        begin = time.monotonic()
        cells = [describe(shape), start]
        try:
            phase = benchmark(session, shape, "--steps", STEPS)
        except BadInput as error:
            session.write(row(*cells, error))
            continue
        step = phase["step_seconds"]
        seconds = time.monotonic() - begin - (WARM_UP + STEPS) * step
        cells += [f"{seconds:.0f}", f"{phase['compile_seconds']:.1f}", f"{step:.4g}"]
        cells += [f"{phase['slowest_seconds']:.4g}", f"{phase['tokens_per_second']:,.0f}"]
        session.write(row(*cells, share(phase), gibibytes(phase), phase["attention"]))
        session.measured.setdefault(shape.name, phase)


def benchmark(session: Session, shape: Shape, *arguments) -> dict:
    """Returns the values of `bert-jax benchmark`, whose compilation cache only this shape uses."""
    cache = session.scratch / "caches" / shape.name
    command = ["-m", "bert_jax", "benchmark", *session.job(shape), "--json", "-", *arguments]
    text = session.run(*command, JAX_COMPILATION_CACHE_DIR=str(cache))
    return json.loads(text)["phases"][shape.phase]


def describe(shape: Shape) -> str:
    return f"{shape.name}, {shape.rows} x {shape.length}"


def share(values: dict) -> str:
    use = values.get("utilization")
    return "unknown" if use is None else f"{use:.3f}"


def gibibytes(values: dict) -> str:
    return f"{(values['peak_bytes'] or values['planned_bytes']) / GIB:.3g}"


def kernels(session: Session) -> None:
    command = [Path(__file__).with_name("attention_kernels.py")]
    if session.options.tokens:
        command += ["--tokens", session.options.tokens]
    cache = (
        session.scratch / "caches/kernels"
    )  # all kernels of a case are compared with one program
    with session.options.output.open("a") as page:
        session.run(*command, stdout=page, JAX_COMPILATION_CACHE_DIR=str(cache))


def profile(session: Session) -> None:
    session.write(
        f"From traces of {TRACED} steps. The name of a group is that of its operations without their numbers.",
        header("step", "operations", "calls a step", "ms a step", "share", "the largest of them"),
    )
    for shape in session.shapes:
        traces = session.scratch / "traces" / shape.name
        try:
            benchmark(session, shape, "--steps", TRACED, "--profile", traces)
            for cells in costs(traces):
                session.write(row(describe(shape), *cells))
        except BadInput as error:
            session.write(row(describe(shape), error))


def costs(traces: Path) -> list[tuple[str, ...]]:
    """Returns a row for each of the largest groups of operations in a trace of TRACED steps: its name, calls, ms a step
    and device, the share of all operations, and its largest operation. Raises BadInput without a trace."""
    from jax.profiler import ProfileData

    for file, (device, lines) in itertools.product(traces.rglob("*.xplane.pb"), TRACES.items()):
        profile = ProfileData.from_file(str(file))
        planes = [plane for plane in profile.planes if plane.name.startswith(device)]
        events = [event for plane in planes for event in operations(plane, lines)]
        if events:
            return largest_groups(events, TRACED * len(planes))
    raise BadInput(f"{traces}: no trace with operations")


def operations(plane, lines: str) -> Iterator[tuple[str, float]]:
    """Yields name and nanoseconds of each operation of a plane. lines: prefix of the lines that have operations."""
    for line in plane.lines:
        if line.name.startswith(lines):
            for event in line.events:
                # The threads of a CPU have other events, too.
                if plane.name.startswith("/device") or "hlo_op" in dict(event.stats):
                    name, *_ = event.name.split(" = ")  # %NAME = TYPE ... on a TPU
                    yield name.lstrip("%"), event.duration_ns


def largest_groups(events: list[tuple[str, float]], steps: int) -> list[tuple[str, ...]]:
    """Returns the rows of `costs`. events: name and nanoseconds of each; steps: of all devices."""
    groups = defaultdict(Counter)
    calls = Counter()
    for name, nanoseconds in events:
        group = re.sub(r"([._]\d+)+$", "", name)
        groups[group][name] += nanoseconds
        calls[group] += 1
    total = sum(nanoseconds for _, nanoseconds in events)
    rows = []
    for group in sorted(groups, key=lambda group: -groups[group].total())[:COSTS]:
        seconds = groups[group].total()
        ((name, most),) = groups[group].most_common(1)
        rows.append(
            (
                group[:80],
                f"{calls[group] / steps:.4g}",
                f"{seconds / steps / 1e6:.3f}",
                f"{seconds / total:.1%}",
                f"{name[:80]}: {most / steps / 1e6:.3f} ms",
            )
        )
    return rows


def pytorch(session: Session) -> None:
    if session.platform == "tpu":
        raise BadInput("not compared on a TPU")
    session.write(
        "On one device; the three programs take turns.",
        header("step", "target", "ours", "transformers on PyTorch"),
    )
    for shape in session.shapes:
        phase = shape.settings.phases[shape.phase]
        keys = [f"phases.short.{key}={phase[key]}" for key in ("length", "max_predictions")]
        keys += [key for key in shape.overrides if not key.startswith("phases.")]
        if shape.settings.dtype == "auto":
            keys.append(f"dtype={'float32' if session.platform == 'cpu' else 'bfloat16'}")
        config, _, _ = shape.name.partition(":")
        rows = max(1, (session.options.tokens or TORCH_TOKENS) // shape.length)
        device = "cpu" if session.platform == "cpu" else "cuda"
        command = [Path(__file__).with_name("step.py"), "--device", device]
        command += ["--shapes", f"{config}:{rows}", *(f"--config.{key}" for key in keys)]
        try:
            session.write(session.run(*command).strip())
        except BadInput as error:
            session.write(row(describe(shape), error))


def plan(session: Session) -> None:
    session.write(
        "In brackets the range that `plan` gives.",
        header(
            "step", "s a step, measured", "MFU", "GiB", "s a step, by plan", "MFU", "GiB",
            "measured / planned",
        ),
    )  # fmt: skip
    for shape in session.shapes:
        cells = [describe(shape), "-", "-", "-"]
        seconds = None
        if shape.name in session.measured:
            values = session.measured[shape.name]
            seconds = values["step_seconds"]
            cells[1:] = f"{seconds:.4g}", share(values), gibibytes(values)
        try:
            values = session.predicted[shape.name].result()
        except BadInput as error:
            session.write(row(*cells, error))
            continue
        low, middle, high = (
            values[f"seconds_per_step{end}"] for end in ("_all_hidden", "", "_none_hidden")
        )
        cells += [f"{middle:.4g} ({low:.4g} to {high:.4g})", share(values)]
        cells.append(f"{values['bytes_per_chip'] / GIB:.3g}")
        session.write(row(*cells, f"{seconds / middle:.2f}" if seconds else "-"))


def predict(session: Session, shape: Shape) -> dict:
    """Returns the values of `bert-jax plan` for a shape."""
    topology = session.options.topology or find_topology(session.kinds)
    command = ["-m", "bert_jax", "plan", *session.job(shape), "--topology", topology, "--json", "-"]
    log = Path(f"{session.options.output}.plan.log")
    text = run(*command, deadline=session.deadline, log=log, before=("nice", "-n", "19"))
    return json.loads(text)["phases"][shape.phase]


def find_topology(kinds: list[str]) -> str:
    """Returns the name that `plan` has for GPUs of these kinds in a machine, or raises BadInput."""
    for name, card in CARDS.items():
        if {card.device_kind} == set(kinds):
            return f"{name}:{len(kinds)}"
    raise BadInput(f"left out: `plan` has no name for {kinds[0]}; --topology sets one")


# --- Runs of the demo -----------------------------------------------------------------------------


def demo(session: Session, name: str, *keys: str) -> list[str]:
    """Returns the command of a run of the demo in the workdir scratch/name."""
    steps = session.options.steps
    keys = (
        f"store={session.scratch / 'store'}",
        f"compilation_cache={session.scratch / 'caches/demo'}",
        f"phases.main.steps={steps}",
        "schedule.warmup=50",
        f"checkpoint.every={EVERY}",
        f"evaluate.every={steps}",
        f"log.every={EVERY}",
        *keys,
    )
    workdir = str(session.scratch / name)
    command = ["-m", "bert_jax", "pretrain", "--config", "demo", "--workdir", workdir]
    return command + [f"--config.{key}" for key in keys]


def resume(session: Session) -> None:
    """Kills a run after its first checkpoints, starts it again, and compares it with an undisturbed one."""
    from bert_jax.checkpoints import reader
    from bert_jax.runs import metrics_file

    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_gpu_deterministic_ops=true".strip()
    session.run(*demo(session, "whole"), XLA_FLAGS=flags)
    command = demo(session, "killed")
    checkpoints = session.scratch / "killed/checkpoints"
    with (
        open(f"{session.options.output}.log", "a") as log,
        subprocess.Popen(
            [sys.executable, *command],
            env=os.environ | {"XLA_FLAGS": flags}, stdout=subprocess.DEVNULL, stderr=log,
        ) as process,
    ):  # fmt: skip
        while process.poll() is None and not reader.steps(checkpoints):
            time.sleep(0.1)
            if time.monotonic() > session.deadline:
                break
        process.kill()
    steps = reader.steps(checkpoints)
    end = session.options.steps
    if process.returncode > 0:
        raise BadInput(f"{' '.join(command)}: exit code {process.returncode}")
    if process.returncode == 0 or steps[-1:] == [end]:
        raise BadInput(f"--steps {end}: the run ended before it could be killed; take more")
    session.run(*command, XLA_FLAGS=flags)
    ends = [session.scratch / side / "checkpoints" / str(end) for side in ("whole", "killed")]
    expected, resumed = (reader.read_manifest(end) for end in ends)
    different = sorted(name for name in expected if expected[name] != resumed.get(name))
    names = "".join(f", {name}" for name in different[:3])
    losses = [
        [
            (line["step"], line["loss"])
            for line in metrics_file.lines(session.scratch / side / "metrics.jsonl")
        ]
        for side in ("whole", "killed")
    ]
    session.write(
        f"Killed with checkpoints of steps {steps}, started again, and trained to step {end}:"
        f" {len(different)} of {len(expected)} arrays of parameters and optimizer differ{names};"
        f" losses of the log {'equal' if losses[0] == losses[1] else 'differ'}."
    )


def bfloat16(session: Session) -> None:
    from bert_jax.runs import metrics_file

    runs = {
        "float32": ("dtype=float32",),
        "bfloat16": ("dtype=bfloat16",),
        "float32, another seed": ("dtype=float32", "seed=1"),
    }
    losses = {}
    for number, (name, keys) in enumerate(runs.items()):
        session.run(*demo(session, f"dtype{number}", *keys))
        lines = metrics_file.lines(session.scratch / f"dtype{number}/metrics.jsonl")
        losses[name] = {line["step"]: line["loss"] for line in lines if line["split"] == "train"}
    steps = list(losses["float32"])
    gaps = [
        max(abs(losses[name][step] - losses["float32"][step]) for step in steps)
        for name in list(losses)[1:]
    ]
    session.write(
        "Training losses of the demo, each the mean of the steps since the line before.",
        header("step", *losses),
        *(row(step, *(f"{of_run[step]:.4f}" for of_run in losses.values())) for step in steps),
        f"\nLargest difference from float32: {gaps[0]:.4f} by bfloat16, {gaps[1]:.4f} by another seed.",
    )


PARTS = {
    "speed": speed,
    "kernels": kernels,
    "resume": resume,
    "bfloat16": bfloat16,
    "profile": profile,
    "pytorch": pytorch,
    "plan": plan,
}


if __name__ == "__main__":
    environment.configure()
    sys.exit(main())
