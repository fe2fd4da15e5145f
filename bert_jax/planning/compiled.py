"""A training step as the TPU compiler makes it for devices that are not here: its own estimates, nothing computed."""

import re
from contextlib import contextmanager
from typing import NamedTuple

import jax
from jax.experimental.compilation_cache import compilation_cache

from bert_jax import build, program
from bert_jax.errors import BadInput, Unfinished, one_line

UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
# "... Used 20.50G of 15.75G hbm ...", and "... temporaries (20.50G) exceeds available HBM (15.75G)."
TOO_LARGE = (
    re.compile(r"Used ([\d.]+)([KMGT]?) of ([\d.]+)([KMGT]?) hbm"),
    re.compile(r"\(([\d.]+)([KMGT]?)\) exceeds available HBM \(([\d.]+)([KMGT]?)\)"),
)


class Sent(NamedTuple):
    """What a device sends in the collectives of one kind along the same axes of the mesh."""

    kind: str
    axes: tuple[str, ...]
    bytes: int


class Step(NamedTuple):
    """Of one device."""

    memory: program.Memory
    cycles: int
    sent: list[Sent]


class TooLarge(BadInput):
    """A step that does not fit: `used` bytes of the `there` that a device has."""

    def __init__(self, used: float, there: float):
        super().__init__(
            f"needs {used / UNITS['G']:.2f} GiB of the {there / UNITS['G']:.2f} GiB of a device,"
            f" {(used - there) / UNITS['G']:.2f} too many; config.train.rows_per_chip (fewer rows at once),"
            " config.train.remat and config.mesh.fsdp make it smaller"
        )
        self.used, self.there = used, there


def compile_step(config, design: build.Design, phase) -> Step:
    """Raises TooLarge where it does not get into a device's memory."""
    precision = "highest" if config.dtype == "float32" else None
    try:
        with jax.set_mesh(design.mesh), jax.default_matmul_precision(precision), uncached():
            compiled = build.compile_train(config, design, phase)
    except jax.errors.JaxRuntimeError as error:
        raise explain(error) from None
    text, sent = compiled.as_text(), {}
    for collective in program.collectives(text, design.mesh):
        key = collective.kind, collective.axes
        sent[key] = sent.get(key, 0) + collective.sent
    sent = [Sent(kind, axes, round(count)) for (kind, axes), count in sent.items()]
    return Step(program.memory(compiled), program.cycles(text), sent)


def explain(error: jax.errors.JaxRuntimeError) -> Exception:
    for pattern in TOO_LARGE:
        if found := pattern.search(str(error)):
            used, there = (float(found[i]) * UNITS[found[i + 1]] for i in (1, 3))
            return TooLarge(used, there)
    return Unfinished(f"the TPU compiler: {one_line(error)}")


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
