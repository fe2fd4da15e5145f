"""Device files of TPUs and GPUs, and published figures of TPUs: peak FLOP/s, memory, bandwidth, links of chips.

Peaks and memory bandwidths come from Google's pages for v3, v4, v5e, v5p and v6e, under docs.cloud.google.com/tpu/docs;
v2's page was not available, so its figures are unchecked. The bandwidth of a link in one direction is the pages'
"bidirectional inter-chip interconnect bandwidth" of a chip (400, 1200 and 800 GB/s for v5e, v5p and v6e), divided by
twice its number of links, 4 or 6. The clock rate is the published peak divided by the operations of the published
matrix units in a cycle.
"""

from pathlib import Path
from typing import NamedTuple

from bert_jax.parallel.cards import CARDS

DEVICES = Path("/dev")
# Patterns of their files in DEVICES; `dxg` is that of all GPUs in Linux on Windows.
TPUS = ("accel[0-9]*", "vfio/[0-9]*")
GPUS = ("nvidia[0-9]*", "dxg")
GIB = 1 << 30
FLAT = ("1x1", "2x2", "2x4", "4x4", "4x8", "8x8", "8x16", "16x16")
CUBES = ("2x2x1", "2x2x2", "2x2x4", "2x4x4", "4x4x4", "4x4x8", "4x8x8", "8x8x8")


class Chip(NamedTuple):
    """A generation of TPUs. All figures are per chip."""

    cloud: str  # prefix of its accelerator types, as in v5litepod-16
    device_kind: str  # of its JAX devices
    counted: int  # what the number in an accelerator type counts per chip: 2 cores or 1 chip
    devices: int  # JAX devices
    memory: float  # bytes that a program may use, a little less than the physical memory
    flops: float  # peak FLOP/s of bfloat16 matrix products
    bandwidth: float  # bytes per second of its memory
    hertz: float  # clock rate
    link: float  # bytes per second that it sends over a link; an axis has one link per direction
    ring: int  # an axis of a slice is a ring if its size is a multiple of this, otherwise a line
    shapes: tuple[str, ...]  # topologies of the slices on offer


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

# By `device_kind`; JAX has two names for some TPUs.
BY_KIND = {each.device_kind: each for each in (*CHIPS.values(), *CARDS.values())}
BY_KIND |= {f"TPU {name}": chip for name, chip in CHIPS.items()}


def has_device(patterns) -> bool:
    """Returns whether this machine has a device file that matches one of the patterns."""
    return any(any(DEVICES.glob(pattern)) for pattern in patterns)


def utilization(flops_per_second: float, devices) -> float | None:
    """Returns the share of the devices' published peak, or None if a device is not in BY_KIND."""
    chips = [BY_KIND.get(device.device_kind) for device in devices]
    if None in chips:
        return None
    return flops_per_second / sum(chip.flops / chip.devices for chip in chips)


def gib(count: float) -> str:
    """Formats bytes in GiB, with the two decimals that the TPU compiler's messages have."""
    return f"{count / GIB:.2f}"


def peak_bytes(devices) -> int | None:
    """Returns the largest peak memory of the devices in bytes; None if none reports it."""
    peaks = []
    for device in devices:
        statistics = device.memory_stats() or {}
        if "peak_bytes_in_use" in statistics:
            peaks.append(statistics["peak_bytes_in_use"])
    return max(peaks, default=None)
