"""NVIDIA GPUs: published figures, and what XLA's compiler asks about a device.

Peaks and links are those of NVIDIA's data sheets: dense products of bfloat16 with sums in float32, and NVLink or PCIe
in one direction. `network` is a GPU's share of the ports of a DGX: 200 Gb/s for an A100, 400 Gb/s for later ones. For
cards without NVLink it is a guess: 100 Gb/s for a machine of eight.

The other figures are those that CUDA reports of a device, as in the descriptions under
xla/backends/gpu/target_config/specs of github.com/openxla/xla. L4 and RTX 4090 are not there: their figures are from
the CUDA C++ Programming Guide, compute capability 8.9, and from the data sheets.
"""

from typing import NamedTuple


class Card(NamedTuple):
    """A kind of GPU."""

    device_kind: str  # of its JAX devices
    total_memory: int  # bytes
    flops: float  # peak FLOP/s of bfloat16 matrix products
    bandwidth: float  # bytes per second of its memory
    link: float  # bytes per second that it sends to other GPUs of its machine
    network: float  # bytes per second that it sends to other machines
    hertz: float  # clock rate
    capability: tuple[int, int]  # CUDA's: (9, 0) for Hopper
    cores: int  # streaming multiprocessors
    units: int  # for float32, in a core
    threads: int  # at most, in a core
    shared_memory: int  # bytes, of a core
    cache: int  # bytes of the second level

    devices = 1  # JAX devices of a card


A100_80 = Card(
    device_kind="NVIDIA A100-SXM4-80GB",
    total_memory=85_100_068_864,
    flops=312e12,
    bandwidth=2.039e12,
    link=300e9,
    network=25e9,
    hertz=1.41e9,
    capability=(8, 0),
    cores=108,
    units=64,
    threads=2048,
    shared_memory=167_936,
    cache=41_943_040,
)
H100 = Card(
    device_kind="NVIDIA H100 80GB HBM3",
    total_memory=84_942_979_072,
    flops=989e12,
    bandwidth=3.352e12,
    link=450e9,
    network=50e9,
    hertz=1.98e9,
    capability=(9, 0),
    cores=132,
    units=128,
    threads=2048,
    shared_memory=233_472,
    cache=52_428_800,
)
L4 = Card(
    device_kind="NVIDIA L4",
    total_memory=24_152_899_584,
    flops=121e12,
    bandwidth=300e9,
    link=32e9,
    network=1.5e9,
    hertz=2.04e9,
    capability=(8, 9),
    cores=58,
    units=128,
    threads=1536,
    shared_memory=102_400,
    cache=50_331_648,
)
CARDS = {
    "a100": A100_80,
    "a100-40": A100_80._replace(
        device_kind="NVIDIA A100-SXM4-40GB",
        total_memory=42_331_013_120,
        bandwidth=1.555e12,
    ),
    "h100": H100,
    "h200": H100._replace(
        device_kind="NVIDIA H200",
        total_memory=151_397_597_184,
        bandwidth=4.8e12,
    ),
    "b200": H100._replace(
        device_kind="NVIDIA B200",
        total_memory=191_514_411_008,
        flops=2250e12,
        bandwidth=7.672e12,
        link=900e9,
        hertz=1.965e9,
        capability=(10, 0),
        cores=148,
        cache=132_644_864,
    ),
    "l4": L4,
    "rtx4090": L4._replace(
        device_kind="NVIDIA GeForce RTX 4090",
        total_memory=25_393_692_672,
        flops=165.2e12,
        bandwidth=1.008e12,
        hertz=2.52e9,
        cores=128,
        cache=75_497_472,
    ),
}
