"""A training step as the TPU compiler makes it for devices that are not here: its own estimates, nothing computed.

What it said is kept beside the compiled programs: minutes of compiling become seconds.
"""

import contextlib
import hashlib
import json
import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import cache
from importlib.metadata import version
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

import jax
from ml_collections import ConfigDict

from bert_jax import build
from bert_jax.data.preparation.pool import end_with_parent
from bert_jax.errors import Unfinished, one_line
from bert_jax.parallel import chips
from bert_jax.planning import custom_calls, hlo, timeline, topology
from bert_jax.runs import jax_setup, out_of_memory
from bert_jax.storage import atomic
from bert_jax.tokenizers.special_tokens import Vocabulary

FOLDER = "plans"
MODULES = hlo, timeline, custom_calls, chips, out_of_memory  # that read what the compiler says


class RealTokens(NamedTuple):
    """Real tokens by places for them in the rows of a phase, and what says so."""

    share: float
    source: str


class Job(NamedTuple):
    """A training job: its resolved config, phases, vocabulary and shares of real tokens."""

    config: ConfigDict  # as a TPU would resolve it
    phases: list
    vocabulary: Vocabulary
    real_tokens: dict[str, RealTokens]  # by the name of a phase
    tell: Callable[[str], None]


class Step(NamedTuple):
    """Of one device."""

    memory: hlo.Memory
    events: list  # see timeline.py


class Failed(Unfinished):
    """The compiler has crashed, or given up: of this program, not of others."""


def make_mesh(job: Job, one: topology.Slice) -> jax.sharding.Mesh:
    """Of a slice; raises BadInput where the config does not divide over it."""
    return build.make_mesh(job.config, job.phases, topology.devices(one))


def compile_step(job: Job, one: topology.Slice, mesh, phase) -> Step:
    """A step of a phase on a slice. Raises TooLarge where it does not get into a device's memory, and Failed where the
    compiler itself fails."""

    def compile_it() -> Step:
        job.tell(f"compiling phase {phase.name} for {one.name}")
        return compile_apart(job, one, phase)

    return read_or_compile(job, lower(job, mesh, phase).as_text(), mesh, compile_it)


def read_or_compile(job: Job, text: str, mesh, compile_it: Callable[[], Step]) -> Step:
    """The compiled step of a lowered program of this text, from the cache of compiled programs if it is there."""
    directory = jax_setup.cache_directory(job.config)
    if not directory:
        return compile_it()
    entry = directory / FOLDER / f"{digest(text, mesh)}.json"
    try:
        memory, rest = json.loads(
            entry.read_bytes()
        )  # of a step that does not fit [null, [used, there]]
        made = Step(hlo.Memory(*memory), rest) if memory else out_of_memory.TooLarge(*rest)
    except (OSError, ValueError, TypeError):  # not there, or damaged
        try:
            made = compile_it()
        except out_of_memory.TooLarge as error:
            made = error
        kept = made if isinstance(made, Step) else (None, made.args)
        with contextlib.suppress(OSError):  # the next plan compiles it again
            entry.parent.mkdir(parents=True, exist_ok=True)
            atomic.write(entry, json.dumps(kept), sync=False)
    if isinstance(made, Exception):
        raise made
    return made


def digest(text: str, mesh) -> str:
    """Of all that decides what becomes of a lowered program, and what is read from it."""
    flags = [os.environ.get(name, "") for name in ("XLA_FLAGS", "LIBTPU_INIT_ARGS")]
    readers = [Path(module.__file__).read_text() for module in MODULES]
    versions = [version(name) for name in ("jax", "jaxlib", "libtpu")]
    places = [(device.device_kind, device.coords) for device in mesh.devices.flat]
    decided = [text, *flags, *readers, *versions, str(places), str(dict(mesh.shape))]
    return hashlib.sha256(json.dumps(decided).encode()).hexdigest()


def lower(job: Job, mesh, phase):
    design = build.design(job.config, mesh, job.vocabulary)
    precision = "highest" if job.config.dtype == "float32" else None
    with jax.set_mesh(mesh), jax.default_matmul_precision(precision):
        return build.lower_train(job.config, design, phase)


@cache
def compiler() -> ProcessPoolExecutor:
    """The process that compiles: libtpu may crash, and would take this one with it."""
    return ProcessPoolExecutor(1, get_context("spawn"), initializer=start_compiler)


def compile_apart(job: Job, one: topology.Slice, phase) -> Step:
    try:
        return compiler().submit(compile_here, job._replace(tell=None), one, phase).result()
    except BrokenProcessPool:
        compiler.cache_clear()  # the next step has another
        raise Failed(f"the TPU compiler crashed on phase {phase.name}") from None


def start_compiler() -> None:
    """The process ends at Ctrl-C, in the middle of the compiler, and with its parent; what libtpu prints is dropped.
    JAX's cache would keep programs that only a real TPU can read back."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    threading.Thread(target=end_with_parent, daemon=True).start()
    nothing = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(nothing, stream)
    jax.config.update("jax_enable_compilation_cache", False)


def compile_here(job: Job, one: topology.Slice, phase) -> Step:
    mesh = make_mesh(job, one)
    return compile_lowered(lower(job, mesh, phase), mesh)


def compile_lowered(lowered, mesh) -> Step:
    try:
        compiled = lowered.compile()
    except jax.errors.JaxRuntimeError as error:
        reason = out_of_memory.too_large(error)
        raise reason or Failed(f"the TPU compiler: {one_line(error)}") from None
    return Step(hlo.memory(compiled), timeline.read(compiled.as_text(), mesh))
