"""A training step as the TPU compiler makes it for devices that are not here: its own estimates, nothing computed."""

import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from importlib.metadata import version
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

import jax
from jax.experimental.compilation_cache import compilation_cache

from bert_jax import build
from bert_jax.data.preparation.pool import end_with_parent
from bert_jax.errors import Unfinished, one_line
from bert_jax.parallel import chips
from bert_jax.planning import cache, custom_calls, hlo, timeline, topology
from bert_jax.runs import jax_setup, out_of_memory
from bert_jax.runs.out_of_memory import TooLarge


class Step(NamedTuple):
    """Of one device."""

    memory: hlo.Memory
    events: list  # see timeline.py


class Failed(Unfinished):
    """The compiler has crashed, or given up: of this program, not of others."""


def compile_step(
    config, design: build.Design, phase, tell: Callable[[str], None] = lambda text: None
) -> Step:
    """Raises TooLarge where it does not get into a device's memory, and Failed where the compiler itself fails. What
    was compiled before is read, and not told."""
    text = lower(config, design, phase).as_text()
    what = f"phase {phase.name}"
    return read_or_compile(
        config, text, design.mesh, what, tell, lambda: compile_apart(config, design, phase)
    )


def read_or_compile(
    config,
    text: str,
    mesh,
    what: str,
    tell: Callable[[str], None],
    compile_it: Callable[[], Step | TooLarge],
) -> Step:
    """What the compiler makes of a lowered program of this text, from where programs are kept if it is there."""
    directory, reason = jax_setup.beside_programs(config)
    key = cache.digest(text, *circumstances(mesh))
    found = None if reason else cache.read(directory, key, unpack)
    if found is None:
        tell(f"compiling {what} for {mesh.size} x {kind(mesh)}")
        if reason:
            tell(not_kept(directory, reason))
        found = compile_it()
        if not reason and (reason := cache.write(directory, key, pack(found))):
            tell(not_kept(directory, reason))
    if isinstance(found, TooLarge):
        raise found
    return found


def not_kept(directory: Path, reason: str) -> str:
    return f"{directory}: {reason}: what the compiler says is not kept"


def lower(config, design: build.Design, phase):
    precision = "highest" if config.dtype == "float32" else None
    with jax.set_mesh(design.mesh), jax.default_matmul_precision(precision):
        return build.lower_train(config, design, phase)


def compile_apart(config, design: build.Design, phase) -> Step | TooLarge:
    """In a process of its own: libtpu may crash, and would take this one with it."""
    slice_name = topology.of(list(design.mesh.devices.flat)).name
    arguments = config, slice_name, phase, design.vocabulary
    with ProcessPoolExecutor(1, get_context("spawn"), initializer=start_compiler) as pool:
        try:
            return unpack(pool.submit(compile_here, *arguments).result())
        except BrokenProcessPool:
            raise Failed(f"the TPU compiler crashed on phase {phase.name}") from None


def start_compiler() -> None:
    """The process ends at Ctrl-C, in the middle of the compiler, and with its parent; what libtpu prints is dropped."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    threading.Thread(target=end_with_parent, daemon=True).start()
    nothing = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(nothing, stream)


def compile_here(config, slice_name: str, phase, vocabulary) -> dict:
    """What is kept of a step on a slice."""
    mesh = build.make_mesh(config, [phase], topology.devices(topology.find(slice_name)))
    design = build.design(config, mesh, vocabulary)
    return pack(compile_lowered(lower(config, design, phase), mesh))


def compile_lowered(lowered, mesh) -> Step | TooLarge:
    try:
        with uncached():
            compiled = lowered.compile()
    except jax.errors.JaxRuntimeError as error:
        error = explain(error)
        if isinstance(error, TooLarge):
            return error
        raise error from None
    return Step(hlo.memory(compiled), timeline.read(compiled.as_text(), mesh))


def circumstances(mesh) -> list[str]:
    """All that decides what becomes of a lowered program, and what is read from it, beside its text."""
    flags = [f"{name}={os.environ.get(name, '')}" for name in ("XLA_FLAGS", "LIBTPU_INIT_ARGS")]
    readers = [Path(module.__file__).read_text() for module in (hlo, timeline, custom_calls, chips)]
    places = [f"{device.coords}" for device in mesh.devices.flat]
    versions = [version(name) for name in ("jax", "jaxlib", "libtpu")]
    return [*flags, *readers, *places, *versions, kind(mesh), str(dict(mesh.shape))]


def kind(mesh) -> str:
    return mesh.devices.flat[0].device_kind


def pack(found: Step | TooLarge) -> dict:
    if isinstance(found, TooLarge):
        return {"used": found.used, "there": found.there}
    return {"memory": found.memory._asdict(), "events": found.events}


def unpack(values: dict) -> Step | TooLarge:
    if "used" in values:
        return TooLarge(values["used"], values["there"])
    return Step(hlo.Memory(**values["memory"]), values["events"])


def explain(error: jax.errors.JaxRuntimeError) -> Exception:
    return out_of_memory.too_large(error) or Failed(f"the TPU compiler: {one_line(error)}")


@contextmanager
def uncached():
    """Without JAX's compilation cache: it would keep these programs, and only a real TPU could read them back."""
    is_on = jax.config.jax_enable_compilation_cache
    compilation_cache.reset_cache()
    jax.config.update("jax_enable_compilation_cache", False)
    try:
        yield
    finally:
        jax.config.update("jax_enable_compilation_cache", is_on)
        compilation_cache.reset_cache()
