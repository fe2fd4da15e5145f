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

from bert_jax import (
    batch,
    build,
    exhausted,
    facts,
    metrics,
    program,
    remote,
    runtime,
    saved,
    sharding,
    staged,
)
from bert_jax import config as configs
from bert_jax.cluster import Cluster
from bert_jax.data.given import given_vocabulary
from bert_jax.errors import BadInput
from bert_jax.feed import SavedFeed, open_feed
from bert_jax.models import attention
from bert_jax.objectives.base import Vocabulary
from bert_jax.tokenizers.special import SPECIAL
from bert_jax.traces import Traces

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
    config = runtime.start(config)
    config.batches = "" if batches == SYNTHETIC else batches
    processes.agree(config)
    processes.compare({"--phase": phase, "--steps": steps})
    chosen = choose_phases(config, phase)
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
        "versions": facts.versions(),
    }


def choose_phases(config, name: str | None) -> list[configs.Phase]:
    phases = [phase for phase in configs.phases(config) if name in (None, phase.name)]
    if not phases:
        raise BadInput(f"--phase {name}: the config has {', '.join(config.phase_order)}")
    return phases


def likely_vocabulary(config, tell: Callable[[str], None]) -> Vocabulary:
    """That of the store, or of the given tokenizer, where there is one; otherwise one of the size that is asked for."""
    if staged.is_there(config.store):
        manifest = staged.manifest(config.store)
        return Vocabulary(manifest["vocabulary"], **manifest["special"])
    if config.tokenizer.path and remote.exists(config.tokenizer.path):
        given = given_vocabulary(config)
        return Vocabulary(given.size, **given.special)
    if config.tokenizer.path:
        size = f"config.tokenizer.size={config.tokenizer.size}"
        tell(f"config.tokenizer.path={config.tokenizer.path}: not there, {size} instead")
    return Vocabulary(config.tokenizer.size, **{name: id for id, name in enumerate(SPECIAL)})


def make_rows(feed: SavedFeed | None, vocabulary: Vocabulary, phase, mesh) -> Iterator[dict]:
    """This host's rows of batches of a phase, over and over."""
    positions = sharding.host_rows(mesh, phase.batch)
    if feed is None:
        sizes = phase.batch, phase.length, phase.predictions
        made = batch.synthetic(*sizes, vocabulary.size, sequences=phase.sequences)
        return itertools.repeat({name: array[positions] for name, array in made.items()})
    held = feed.saved.steps
    first, last = max(phase.first, held.start), min(phase.last, held.stop)
    if first >= last:
        raise BadInput(
            f"config.batches={feed.path}: {saved.describe_steps(feed.saved)}, none of phase {phase.name}; --phase"
            " names one"
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
    positions = sharding.host_rows(mesh, phase.batch)
    seconds, tokens = [], 0.0
    before = metrics.peak_bytes(mesh.local_devices)
    with jax.set_mesh(mesh):
        with exhausted.told("the first state"):
            state = made.initialize()
        for step in range(WARM_UP + steps):
            arrays = sharding.to_devices(mesh, next(rows), positions, phase.batch)
            jax.block_until_ready((state, arrays))
            if traces.changes(step):
                traces.change(step)
            start = time.perf_counter()
            room = nullcontext() if step else exhausted.told(f"phase {phase.name}, a step")
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
    flops = facts.step_flops(config, vocabulary.size, phase)
    devices = made.mesh.devices.flatten()
    planned = program.memory(made.train).total
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
        "utilization": metrics.utilization(flops / median, devices),
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
