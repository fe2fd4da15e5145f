"""`benchmark`: times the compiled training step of each phase on this machine's devices.

Rows are full of random tokens, so it needs no store, no workdir and no TensorFlow.
"""

import statistics
import time

import jax

from bert_jax import build, cli
from bert_jax import config as configs
from bert_jax.data import batch
from bert_jax.data.vocabulary import expected_vocabulary
from bert_jax.models import base as models
from bert_jax.parallel import chips
from bert_jax.parallel import mesh as meshes
from bert_jax.parallel.cluster import Cluster, joined
from bert_jax.planning import hlo
from bert_jax.runs import jax_setup, out_of_memory, run_info
from bert_jax.runs.profiler import Traces
from bert_jax.tasks import base as tasks

# The text of the results, and of those of a phase.
HEAD = "{parameters:,} parameters, {body_parameters:,} in the body; {dtype} on {hardware}"
PHASE = (
    "{name}: {step_seconds:.4g} s a step (slowest of {steps}: {slowest_seconds:.4g}),"
    " {tokens_per_second:,.0f} tokens/s, {rows_per_second:,.1f} rows/s,"
    " {flops_per_step:.3g} FLOPs a step, {use}, {memory} GiB a device,"
    " compiled in {compile_seconds:.1f} s"
)
WARM_UP = 2  # first steps of a phase, which are not timed
OPTIONS = [
    cli.CONFIG,
    cli.PHASE,
    cli.option("--steps", "timed steps; default: %(default)s", type=cli.positive, default=10),
    cli.path("--profile", "directory for traces of the steps, which slow them", metavar="DIR"),
    cli.AS_JSON,
]


def run(options, overrides) -> int:
    config = cli.load_config(options, overrides)
    with joined(config.distributed) as processes:
        log = cli.log if processes.is_main else lambda text: None
        values = benchmark(config, options.phase, options.steps, log, processes, options.profile)
        if processes.is_main:
            cli.show(options, values, describe(values))
    return 0


def benchmark(config, phase=None, steps=10, log=print, processes=None, profile=None) -> dict:
    """Returns the values of `benchmark --json`: timings of `steps` steps of every phase, or of the given one.

    phase: its name; default: all phases.
    processes: a Cluster, the processes of the run; default: this one alone.
    profile: a directory for traces of the timed steps, with a subdirectory for each phase.

    Raises BadInput before anything is compiled.
    """
    processes = processes or Cluster()
    config = jax_setup.start(config)
    tasks.local_store(config, log)  # fills keys such as the names of labels
    processes.agree(config)
    vocabulary = expected_vocabulary(config, log)  # that of the store on each host, if there is one
    processes.compare({"--phase": phase, "--steps": steps, "vocabulary": vocabulary._asdict()})
    phases = configs.choose_phases(config, phase)
    design = build.design(config, build.make_mesh(config, phases), vocabulary)
    traced = (WARM_UP, WARM_UP + steps) if profile else ()
    timings = {}
    for phase in phases:
        log(f"benchmark: compiling phase {phase.name}")
        with Traces(traced, profile and profile / phase.name, log) as traces:
            timings[phase.name] = time_phase(config, design, phase, steps, traces)
    return {
        "phases": timings,
        **models.parameters(config, design.shapes.params, vocabulary.size),
        "dtype": config.dtype,
        "devices": [device.device_kind for device in design.mesh.devices.flatten()],
        "mesh": dict(design.mesh.shape),
        "versions": run_info.versions(),
    }


def compile_phase(config, design: build.Design, phase) -> tuple:
    """Returns (() -> state, (state, batch) -> (state, ...), seconds to compile the latter).

    The seconds are few if JAX's compilation cache has the program. Raises BadInput if a device is out of memory.
    """
    with jax.set_mesh(design.mesh):
        initialize = build.compile_program(build.lower_initialize(design), "initial state")
        lowered = build.lower_train(config, design, phase)
        start = time.perf_counter()
        train = build.compile_program(lowered, f"phase {phase.name}, a step")
        return initialize, train, time.perf_counter() - start


def time_phase(config, design: build.Design, phase, steps: int, traces: Traces) -> dict:
    """Returns the JSON values of a phase.

    `planned_bytes` is the compiler's number. `peak_bytes` is the device's counter if it has one: the maximum since the
    process started, which may be from an earlier phase.
    """
    initialize, train, compile_seconds = compile_phase(config, design, phase)
    seconds = time_steps(initialize, train, design, phase, steps, traces)
    median = statistics.median(seconds)
    flops = tasks.step_flops(config, phase, design.vocabulary, design.shapes.params)
    return {
        "compile_seconds": compile_seconds,
        "attention": tasks.attention(config, phase, design.mesh),
        "steps": len(seconds),
        "step_seconds": median,
        "slowest_seconds": max(seconds),
        "rows_per_second": phase.batch / median,
        "tokens_per_second": tasks.tokens_per_step(config, phase) / median,
        "flops_per_step": flops,
        "utilization": chips.utilization(flops / median, design.mesh.devices.flatten()),
        "peak_bytes": chips.peak_bytes(design.mesh.local_devices),
        "planned_bytes": hlo.memory(train).total,
    }


def time_steps(initialize, train, design: build.Design, phase, steps, traces) -> list[float]:
    """Returns the seconds of each step, until its results are ready. Its batch is on the devices beforehand."""
    mesh = design.mesh
    positions = meshes.host_rows(mesh, phase.batch)
    dataset = design.dataset
    size = design.vocabulary.size
    rows = batch.synthetic(dataset.shapes(phase, phase.batch), size, dataset.ranges(size))
    rows = {name: array[positions] for name, array in rows.items()}
    seconds = []
    with jax.set_mesh(mesh), out_of_memory.explain(f"phase {phase.name}"):
        state = initialize()
        for step in range(WARM_UP + steps):
            arrays = meshes.to_devices(mesh, rows, positions, phase.batch)
            jax.block_until_ready((state, arrays))
            if traces.is_due(step):
                traces.toggle(step)
            start = time.perf_counter()
            with jax.profiler.StepTraceAnnotation("train", step_num=step):
                state, *_ = jax.block_until_ready(train(state, arrays))
            seconds.append(time.perf_counter() - start)
    return seconds[WARM_UP:]


def describe(values: dict) -> str:
    """Returns the text of the results."""
    devices = values["devices"]
    kinds = ", ".join(sorted(set(devices)))
    lines = [HEAD.format(hardware=f"{len(devices)} x {kinds}", **values)]
    for name, phase in values["phases"].items():
        use = f"peak FLOPs of {kinds} unknown"
        if phase["utilization"] is not None:
            use = f"utilization {phase['utilization']:.3f}"
        if phase["attention"]:
            use += f", attention by {phase['attention']}"
        memory = phase["peak_bytes"] or phase["planned_bytes"]
        lines.append(PHASE.format(name=name, use=use, memory=chips.gib(memory), **phase))
    return "\n".join(lines)
