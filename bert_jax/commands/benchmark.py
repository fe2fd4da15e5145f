"""Times the compiled training step of each phase on the devices that are here: no store, no workdir, no TensorFlow."""

import itertools
import os
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import jax
from ml_collections import ConfigDict

from bert_jax import build, cli
from bert_jax import config as configs
from bert_jax.data import batch
from bert_jax.data.feed import SavedFeed, open_feed
from bert_jax.data.vocabulary import likely_vocabulary
from bert_jax.errors import BadInput
from bert_jax.models import attention
from bert_jax.parallel import chips
from bert_jax.parallel import mesh as meshes
from bert_jax.parallel import processes as cluster
from bert_jax.parallel.processes import Cluster
from bert_jax.planning import hlo
from bert_jax.runs import jax_setup, metrics, out_of_memory, run_info
from bert_jax.runs.profiler import Traces
from bert_jax.tokenizers.special_tokens import Vocabulary

WARM_UP = 2  # steps of a phase that are not timed
CACHE_HIT = "/jax/compilation_cache/cache_hits"  # JAX's event
SYNTHETIC = "synthetic"  # full rows of random tokens, in place of a directory of saved batches


class Programs(NamedTuple):
    """Of one phase."""

    mesh: Any
    shapes: Any  # of a state
    initialize: Any  # () -> state
    train: Any  # (state, batch) -> (state, metrics, verdict)
    compile_seconds: float  # of `train` alone, from what was lowered on
    is_from_cache: bool  # JAX's, of what it has compiled before


class Times(NamedTuple):
    seconds: list[float]  # of each step
    tokens: float  # real ones a step, on average
    # Of the fullest device of this process, where these steps were its fullest so far.
    peak_bytes: int | None


def named(text: str) -> str:
    """A place, or a word that stands for none."""
    cli.place(text)
    return text


SAVED = "saved batches, or synthetic; default: the config's, or synthetic"
OPTIONS = [
    cli.CONFIG,
    cli.PHASE,
    cli.option("--batches", SAVED, type=named, metavar="DIR"),
    cli.option("--steps", "timed steps; default: %(default)s", type=cli.positive, default=10),
    cli.option("--profile", "for traces of the timed steps", type=cli.place, metavar="DIR"),
    cli.AS_JSON,
]


def run(options, overrides) -> int:
    config = cli.load_config(options, overrides)
    batches = options.batches or config.batches or SYNTHETIC
    with cluster.joined(config.distributed) as processes:
        tell = cli.tell if processes.is_main else cli.silent
        arguments = options.phase, options.steps, tell, processes, options.profile
        values = benchmark(config, batches, *arguments)
        return cli.show(options, values, describe(values)) if processes.is_main else 0


def benchmark(
    config: ConfigDict,
    batches: str,
    phase: str | None = None,
    steps: int = 10,
    tell: Callable[[str], None] = print,
    processes: Cluster | None = None,
    profile: Path | None = None,
) -> dict:
    """Timings of `steps` steps of every phase, or of one; what DESIGN promises of `benchmark --json`.

    batches: a directory of saved batches, or SYNTHETIC. processes: those that time it together; by default this one
    alone. profile: a directory for traces of the timed steps, one a phase. Raises BadInput before anything is compiled.
    """
    check_profile(profile)
    processes = processes or Cluster()
    config = jax_setup.start(config)
    config.batches = "" if batches == SYNTHETIC else batches
    processes.agree(config)
    processes.compare({"--phase": phase, "--steps": steps})
    chosen = configs.choose_phases(config, phase)
    mesh = build.make_mesh(config, chosen)
    feed = open_feed(config) if config.batches else None
    vocabulary = feed.vocabulary if feed else likely_vocabulary(config, tell)
    # Of the store on each host, if there is one.
    known = {f"vocabulary, {name}": value for name, value in vocabulary._asdict().items()}
    processes.compare(known | {"config.batches: fingerprint": feed.fingerprint if feed else ""})
    rows = {one.name: make_rows(feed, vocabulary, one, mesh) for one in chosen}
    values = {"phases": {}}
    for one in chosen:
        tell(f"benchmark: phase {one.name} is compiled")
        made = compile_phase(config, one, mesh, vocabulary)
        values |= metrics.parameters(made.shapes.params, vocabulary.size)
        traced = (WARM_UP, WARM_UP + steps) if profile else ()
        with Traces(traced, profile and profile / one.name, tell) as traces:
            times = measure(made, one, rows[one.name], steps, traces)
        numbers = summarize(config, vocabulary, made, one, times)
        trace = {"trace": str(traces.directory) if traces.written else None}
        values["phases"][one.name] = {**numbers, **trace}
        del made  # and its programs, before the next ones
    return values | {
        "batches": batches,
        "dtype": config.dtype,
        "devices": [device.device_kind for device in mesh.devices.flatten()],
        "mesh": dict(mesh.shape),
        "versions": run_info.versions(),
    }


def make_rows(feed: SavedFeed | None, vocabulary: Vocabulary, phase, mesh) -> Iterator[dict]:
    """This host's rows of batches of a phase, over and over."""
    positions = meshes.host_rows(mesh, phase.batch)
    if feed is None:
        sizes = phase.batch, phase.length, phase.predictions
        made = batch.synthetic(*sizes, vocabulary.size, sequences=phase.sequences)
        return itertools.repeat({name: array[positions] for name, array in made.items()})
    first, last = max(phase.first, feed.steps.start), min(phase.last, feed.steps.stop)
    if first >= last:
        raise BadInput(
            f"config.batches={feed.path}: {feed.describe()}, none of phase {phase.name}; --phase names one"
        )
    rounds = (feed.train(phase, first, last, positions) for _ in itertools.count())
    return itertools.chain.from_iterable(rounds)


def compile_phase(config, phase, mesh, vocabulary: Vocabulary) -> Programs:
    """Raises BadInput where a device has no room for them."""
    made = build.design(config, mesh, vocabulary)
    with jax.set_mesh(mesh):
        initialize = build.compile_program(build.lower_initialize(made), "the first state")
        lowered = build.lower_train(config, made, phase)
        with cache_hits() as hits:
            start = time.perf_counter()
            train = build.compile_program(lowered, f"phase {phase.name}, a step")
            seconds = time.perf_counter() - start
    return Programs(mesh, made.shapes, initialize, train, seconds, bool(hits))


@contextmanager
def cache_hits() -> Iterator[list[str]]:
    """A list, which gets JAX's event of every program that this thread finds in JAX's cache within it."""
    hits, here = [], threading.get_ident()

    def listen(event: str, **_) -> None:
        if event == CACHE_HIT and threading.get_ident() == here:
            hits.append(event)

    jax.monitoring.register_event_listener(listen)
    try:
        yield hits
    finally:
        jax.monitoring.unregister_event_listener(listen)


def check_profile(directory: Path | None) -> None:
    """Before minutes of compiling, not after them."""
    if directory is None:
        return
    there = next(path for path in (directory, *directory.absolute().parents) if path.exists())
    if not there.is_dir() or not os.access(there, os.W_OK):
        raise BadInput(f"--profile {directory}: cannot be written")


def measure(made: Programs, phase, rows: Iterator[dict], steps: int, traces: Traces) -> Times:
    """Times steps one by one, each until its results are there; its batch is on the devices before it begins."""
    mesh, train = made.mesh, made.train
    positions = meshes.host_rows(mesh, phase.batch)
    seconds, tokens = [], 0.0
    before = metrics.peak_bytes(mesh.local_devices)
    with jax.set_mesh(mesh):
        with out_of_memory.told("the first state"):
            state = made.initialize()
        for step in range(WARM_UP + steps):
            arrays = meshes.to_devices(mesh, next(rows), positions, phase.batch)
            jax.block_until_ready((state, arrays))
            if traces.changes(step):
                traces.change(step)
            start = time.perf_counter()
            room = nullcontext() if step else out_of_memory.told(f"phase {phase.name}, a step")
            with traces.named(step), room:
                state, values, _ = jax.block_until_ready(train(state, arrays))
            seconds.append(time.perf_counter() - start)
            if len(seconds) > WARM_UP:
                tokens += float(values["fill"][0]) / steps
    peak = metrics.peak_bytes(mesh.local_devices)
    return Times(seconds[WARM_UP:], tokens, None if peak == before else peak)


def summarize(config, vocabulary: Vocabulary, made: Programs, phase, times: Times) -> dict:
    """The numbers of a phase.

    `peak_bytes` are what a device says it used, or else what the compiler planned: devices tell the most since their
    process began, which may be that of a phase before.
    """
    median = statistics.median(times.seconds)
    flops = run_info.step_flops(config, vocabulary.size, phase)
    devices = made.mesh.devices.flatten()
    planned = hlo.memory(made.train).total
    return {
        "compile_seconds": made.compile_seconds,
        "compiled_before": made.is_from_cache,
        "attention": attention.resolve(config, phase, made.mesh),
        "steps": len(times.seconds),
        "step_seconds": median,
        "slowest_seconds": max(times.seconds),
        "rows_per_second": phase.batch / median,
        "tokens_per_second": times.tokens / median,
        "flops_per_step": flops,
        "utilization": chips.utilization(flops / median, devices),
        "peak_bytes": times.peak_bytes or planned,
        "peak_bytes_from": "device" if times.peak_bytes else "compiler",
        "planned_bytes": planned,
    }


def describe(values: dict) -> str:
    kinds = ", ".join(sorted(set(values["devices"])))
    lines = [
        f"{values['parameters']:,} parameters, {values['encoder_parameters']:,} of the encoder;"
        f" {values['dtype']} on {len(values['devices'])} x {kinds}; {values['batches']} batches"
    ]
    for name, phase in values["phases"].items():
        share = phase["utilization"]
        use = f"utilization {share:.3f}" if share is not None else f"no known peak of {kinds}"
        origin = "from the cache" if phase["compiled_before"] else "compiled"
        lines.append(
            f"{name}: {phase['step_seconds']:.4g} s a step"
            f" (slowest of {phase['steps']}: {phase['slowest_seconds']:.4g}),"
            f" {phase['tokens_per_second']:,.0f} tokens/s, {phase['rows_per_second']:,.1f} rows/s,"
            f" {phase['flops_per_step']:.3g} FLOPs a step, {use}, attention by {phase['attention']},"
            f" {phase['peak_bytes'] / 2**30:,.3f} GiB a device ({phase['peak_bytes_from']}),"
            f" {origin} in {phase['compile_seconds']:.1f} s"
        )
    if traces := [phase["trace"] for phase in values["phases"].values() if phase["trace"]]:
        lines.append(f"traces, whose making takes time as well: {' '.join(traces)}")
    return "\n".join(lines)
