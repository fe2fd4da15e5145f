"""Chips: the files by which TPUs are known, and published figures, peak FLOP/s, memory and its bandwidth, links.

Peaks and bandwidths of memory are those of Google's pages for v3, v4, v5e, v5p and v6e, under
docs.cloud.google.com/tpu/docs; v2's page was not to be had, so its figures are not checked. What goes over a link in
one direction is the pages' "bidirectional inter-chip interconnect bandwidth" of a chip (400, 1200 and 800 GB/s for v5e,
v5p and v6e) by twice its links, 4 or 6. Cycles a second are what makes the published peak of the published matrix
units.
"""

from pathlib import Path
from typing import NamedTuple

DEVICES = Path("/dev")
TPUS = ("accel[0-9]*", "vfio/[0-9]*")  # there
GIB = 1 << 30
FLAT = ("1x1", "2x2", "2x4", "4x4", "4x8", "8x8", "8x16", "16x16")
CUBES = ("2x2x1", "2x2x2", "2x2x4", "2x4x4", "4x4x4", "4x4x8", "4x8x8", "8x8x8")


class Chip(NamedTuple):
    """A generation of TPUs."""

    cloud: str  # what its accelerator types begin with
    device_kind: str  # of JAX's devices
    counted: int  # by the number of an accelerator type, a chip: cores, or the chip
    devices: int  # of JAX, a chip
    memory: float  # bytes that the compiler gives a program, a chip: a little less than there are
    flops: float  # a second, of bfloat16 matrix products, a chip
    bandwidth: float  # bytes a second of its memory, a chip
    hertz: float  # cycles a second
    link: float  # bytes a second that a chip sends over one link; an axis of a slice has two, one a direction
    ring: int  # an axis of a slice is a ring where its size is a multiple of this, a line where not
    shapes: tuple[str, ...]  # in which slices are let


SQUARES = ("2x2", "4x4", "8x8", "16x16")
CHIPS = {
    "v2": Chip("v2", "TPU v2", 2, 2, 14.96 * GIB, 45e12, 700e9, 0.70e9, 15.5e9, 16, SQUARES),
    "v3": Chip("v3", "TPU v3", 2, 2, 30.96 * GIB, 123e12, 900e9, 0.94e9, 20.5e9, 32, SQUARES),
    "v4": Chip("v4", "TPU v4", 2, 1, 30.75 * GIB, 275e12, 1200e9, 1.05e9, 50e9, 4, CUBES),
    "v5e": Chip(
        "v5litepod", "TPU v5 lite", 1, 1, 15.75 * GIB, 197e12, 819e9, 1.50e9, 50e9, 16, FLAT
    ),
    "v5p": Chip("v5p", "TPU v5", 2, 1, 95.74 * GIB, 459e12, 2765e9, 1.75e9, 100e9, 4, CUBES),
    "v6e": Chip("v6e", "TPU v6 lite", 1, 1, 31.25 * GIB, 918e12, 1638e9, 1.75e9, 100e9, 16, FLAT),
}

# Published peak of bfloat16 matrix products, FLOP/s a device, by `device_kind`; of some TPUs JAX knows two names.
PEAK_FLOPS = {
    name: chip.flops / chip.devices
    for kind, chip in CHIPS.items()
    for name in (chip.device_kind, f"TPU {kind}")
} | {
    "NVIDIA A100-SXM4-40GB": 312e12,
    "NVIDIA A100-SXM4-80GB": 312e12,
    "NVIDIA H100 80GB HBM3": 989e12,
    "NVIDIA H200": 989e12,
}


def utilization(flops_per_second: float, devices) -> float | None:
    """Share of the devices' published peak; None where it is not known."""
    peaks = [PEAK_FLOPS.get(device.device_kind) for device in devices]
    return None if None in peaks else flops_per_second / sum(peaks)
