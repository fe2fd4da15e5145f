"""The roofline: the least time of an operation, from its FLOPs and bytes and the published figures of a chip."""

from typing import NamedTuple

import jax

from bert_jax.parallel.chips import BY_KIND


class Factors(NamedTuple):
    """How many times its roofline an operation is estimated to take: at least, likely, at most."""

    least: float
    likely: float
    most: float


def find_chip(mesh: jax.sharding.Mesh):
    """Returns the Chip or Card of the devices of a mesh."""
    return BY_KIND[mesh.devices.flat[0].device_kind]


def cycles(chip, flops: float, size: float, factor: float) -> int:
    """Returns the cycles of an operation on one device of a chip: `factor` times the larger of FLOPs divided by the
    peak and bytes divided by the memory bandwidth.

    size: bytes that it reads and writes.
    """
    seconds = max(flops / chip.flops, size / chip.bandwidth)
    return round(factor * seconds * chip.devices * chip.hertz)
