"""What a step will be like without compiling it whole: from two short stacks of layers, as all grows in a line.

Every layer computes, holds and sends what the next one does. What the compiler does differently once memory fills is
not seen, so a sketch of a step that nearly fills a chip is too low: one with less than SPARE is told not to fit.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import jax

from bert_jax import build
from bert_jax.planning import compilation, timeline
from bert_jax.planning.changes import changed
from bert_jax.planning.estimate import Parts, parts

STACKS = 1, 3  # layers
# Bytes of a whole step by those of its sketch, at most: those of BERT-base on v5e:4x4, at length 128, were 1.15.
SPARE = 1.2


def is_whole(config) -> bool:
    """Whether the stack is so short that it is compiled as it is."""
    return config.model.layers <= STACKS[-1]


class Stacks(NamedTuple):
    """Steps of short stacks, and where between them, or beyond, the whole one lies."""

    mesh: jax.sharding.Mesh
    steps: list[compilation.Step]  # one, where the whole stack is short
    share: float

    def with_trips(self, before: int, after: int) -> "Stacks":
        """With a loop over so many micro-batches of as many rows instead of `before`."""
        return self.with_events(lambda events: timeline.with_trips(events, before, after))

    def elsewhere(self, mesh) -> "Stacks":
        """On another mesh, around whose longer rings a chip sends a larger share; a permutation is from one to one."""

        def share(where, axes) -> float:
            group = math.prod(where.shape[axis] for axis in axes)
            return (group - 1) / group

        def scale(kind: str, axes: tuple[str, ...]) -> float:
            there = share(mesh, axes)
            return (
                float(there > 0) if kind == "collective-permute" else there / share(self.mesh, axes)
            )

        return self.with_events(lambda events: timeline.with_bytes(events, scale))._replace(
            mesh=mesh
        )

    def with_events(self, change: Callable[[list], list]) -> "Stacks":
        return self._replace(
            steps=[step._replace(events=change(step.events)) for step in self.steps]
        )


def sketch(one, config, devices, phase, vocabulary, tell: Callable[[str], None]) -> Parts:
    """A phase on a slice; raises what compile_stacks raises."""
    return extrapolate(one, compile_stacks(config, devices, phase, vocabulary, tell))


def extrapolate(one, stacks: Stacks) -> Parts:
    found = [parts(one, stacks.mesh, step) for step in stacks.steps]
    return between(found[0], found[-1], stacks.share)


def compile_stacks(config, devices, phase, vocabulary, tell: Callable[[str], None]) -> Stacks:
    """Raises BadInput where the mesh does not fit, TooLarge where even a short stack does not."""
    layers = config.model.layers
    mesh = build.make_mesh(config, [phase], devices)
    if is_whole(config):
        design = build.design(config, mesh, vocabulary)
        return Stacks(mesh, [compilation.compile_step(config, design, phase, tell)], 0.0)
    found = []
    for count in STACKS:
        short = changed(config, {"model.layers": count})
        design = build.design(short, mesh, vocabulary)
        found.append(compilation.attempt(short, design, phase, tell))
    share = (layers - STACKS[0]) / (STACKS[1] - STACKS[0])
    if failed := [step for step in found if isinstance(step, compilation.TooLarge)]:
        raise compilation.TooLarge(line(*map(used, found), share), failed[0].there)
    return Stacks(mesh, found, share)


def used(step: compilation.Step | compilation.TooLarge) -> float:
    """Bytes of a device."""
    return step.used if isinstance(step, compilation.TooLarge) else step.memory.total


def between(a: Parts, b: Parts, share: float) -> Parts:
    """On the line from a (share 0) to b (share 1), or beyond; nothing is less than none."""
    keys = a.sent.keys() | b.sent.keys()
    sent = {key: line(a.sent.get(key, 0), b.sent.get(key, 0), share) for key in sorted(keys)}
    numbers = [line(x, y, share) for x, y in zip(a[:-1], b[:-1], strict=True)]
    return Parts(*numbers, sent)


def line(a: float, b: float, share: float) -> float:
    return max(0.0, a + share * (b - a))
