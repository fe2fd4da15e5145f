"""NVIDIA GPUs: published figures, and what XLA's compiler asks about a device.

Peaks and links are those of NVIDIA's data sheets: dense products of bfloat16 with sums in float32, and NVLink or PCIe
in one direction. `network` is a GPU's share of the ports of a DGX: 200 Gb/s for an A100, 400 Gb/s for later ones. For
cards without NVLink it is a guess: 100 Gb/s for a machine of eight.

The other figures are those that CUDA reports of a device, as in the descriptions under
xla/backends/gpu/target_config/specs of github.com/openxla/xla. L4 and RTX 4090 are not there: theirs are those of
compute capability 8.9 in the CUDA C++ Programming Guide, and cores, clock and cache of the data sheets.
"""

import os
from typing import NamedTuple

SHARE = "XLA_PYTHON_CLIENT_MEM_FRACTION"  # of the memory that JAX allocates when it starts


class Card(NamedTuple):
    """A kind of GPU."""

    device_kind: str  # of its JAX devices
    capability: tuple[int, int]  # CUDA's: 9.0 for Hopper
    total_memory: int  # bytes
    bandwidth: float  # bytes per second of its memory
    flops: float  # peak FLOP/s of bfloat16 matrix products
    link: float  # bytes per second that it sends to other GPUs of its machine
    network: float  # bytes per second that it sends to other machines
    hertz: float  # clock rate
    cores: int  # streaming multiprocessors
    units: int  # of each, for float32
    threads: int  # of each, at most
    shared_memory: int  # bytes of each
    cache: int  # bytes of the second level

    @property
    def memory(self) -> float:
        """Bytes that a program may use."""
        return float(os.environ.get(SHARE, 0.75)) * self.total_memory

    @property
    def devices(self) -> int:
        """JAX devices of a card."""
        return 1


A100 = (2048, 167_936, 41_943_040)  # threads, shared memory, cache
HOPPER = (2048, 233_472, 52_428_800)
CARDS = {
    "a100": Card(
        "NVIDIA A100-SXM4-80GB",
        (8, 0), 85_100_068_864, 2.039e12, 312e12, 300e9, 25e9, 1.41e9, 108, 64, *A100,
    ),
    "a100-40": Card(
        "NVIDIA A100-SXM4-40GB",
        (8, 0), 42_331_013_120, 1.555e12, 312e12, 300e9, 25e9, 1.41e9, 108, 64, *A100,
    ),
    "h100": Card(
        "NVIDIA H100 80GB HBM3",
        (9, 0), 84_942_979_072, 3.352e12, 989e12, 450e9, 50e9, 1.98e9, 132, 128, *HOPPER,
    ),
    "h200": Card(
        "NVIDIA H200",
        (9, 0), 151_397_597_184, 4.8e12, 989e12, 450e9, 50e9, 1.98e9, 132, 128, *HOPPER,
    ),
    "b200": Card(
        "NVIDIA B200",
        (10, 0), 191_514_411_008, 7.672e12, 2250e12, 900e9, 50e9, 1.965e9, 148, 128,
        2048, 233_472, 132_644_864,
    ),
    "l4": Card(
        "NVIDIA L4",
        (8, 9), 24_152_899_584, 300e9, 121e12, 32e9, 1.5e9, 2.04e9, 58, 128,
        1536, 102_400, 50_331_648,
    ),
    "rtx4090": Card(
        "NVIDIA GeForce RTX 4090",
        (8, 9), 25_393_692_672, 1.008e12, 165.2e12, 32e9, 1.5e9, 2.52e9, 128, 128,
        1536, 102_400, 75_497_472,
    ),
}  # fmt: skip


def describe(card: Card) -> str:
    """Returns the text of a GpuTargetConfigProto, by which XLA compiles for a GPU that is not attached."""
    major, minor = card.capability
    features = "ACCELERATED_FEATURES" if major >= 9 else "NONE"
    return f"""
gpu_device_info {{
  cuda_compute_capability {{ major: {major} minor: {minor} feature_extension: {features} }}
  device_memory_size: {card.total_memory}
  memory_bandwidth: {card.bandwidth:.0f}
  clock_rate_ghz: {card.hertz / 1e9}
  core_count: {card.cores}
  fpus_per_core: {card.units}
  threads_per_core_limit: {card.threads}
  shared_memory_per_core: {card.shared_memory}
  shared_memory_per_block_optin: {card.shared_memory - 1024}
  l2_cache_size: {card.cache}
  threads_per_block_limit: 1024
  threads_per_warp: 32
  shared_memory_per_block: 49152
  registers_per_core_limit: 65536
  registers_per_block_limit: 65536
  block_dim_limit_x: 2147483647
  block_dim_limit_y: 65535
  block_dim_limit_z: 65535
  thread_dim_limit_x: 1024
  thread_dim_limit_y: 1024
  thread_dim_limit_z: 64
}}
platform_name: "CUDA"
dnn_version_info {{ major: 9 minor: 10 }}
device_description_str: "{card.device_kind}"
"""
