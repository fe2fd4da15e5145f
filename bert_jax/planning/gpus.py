"""Machines with NVIDIA GPUs: names, devices to compile for that are not attached, memory, bandwidth."""

import math
import os
import re
from typing import NamedTuple

import numpy as np
from jax.experimental import topologies

from bert_jax.errors import BadInput, one_line
from bert_jax.parallel.cards import CARDS, Card
from bert_jax.planning.gpu_operations import FACTORS
from bert_jax.runs import environment

INSTALL = "run pip install -c constraints.txt -e '.[plan-gpu]'"
NAME = re.compile(r"([\w-]+):(?:([1-9]\d*)x)?([1-9]\d*)")


class Machines(NamedTuple):
    """Equal machines with GPUs of one kind. Has the attributes and methods of `tpus.Slice`."""

    name: str  # h100:8, or h100:2x8 for two machines
    kind: str  # a key of CARDS
    hosts: int
    per_host: int  # GPUs

    attentions = ("xla", "cudnn")
    has_memory_errors = False
    factors = FACTORS
    sources = (
        "memory and the schedule are the compiler's; seconds are arithmetic: of computation"
        f" {FACTORS.likely} times the roofline of each operation ({FACTORS.least} to {FACTORS.most}"
        " times in the ranges), of communication from published bandwidths"
    )

    @property
    def chip(self) -> Card:
        return CARDS[self.kind]

    @property
    def chips(self) -> int:
        return self.hosts * self.per_host

    @property
    def memory(self) -> float:
        """Bytes of a GPU that JAX allocates when it starts. Raises BadInput for a wrong share of them."""
        return environment.memory_share() * self.chip.total_memory

    @property
    def accelerator_type(self) -> str:
        return f"{self.chips} x {self.chip.device_kind}"

    def devices(self) -> list:
        """Returns JAX devices to compile for; none is attached. Raises BadInput if JAX has no compiler for GPUs."""
        if not environment.has_gpu_compiler():
            raise BadInput(f"--topology {self.name}: JAX has no compiler for GPUs; {INSTALL}")
        environment.memory_share()  # JAX ignores its compiler if this is no number
        os.environ |= environment.gpu_flags()
        try:
            described = topologies.get_topology_desc(
                platform="cuda",
                target_config=target_config(self.chip),
                topology=f"1x{self.hosts}x{self.per_host}",
            )
        except (NotImplementedError, RuntimeError) as error:
            raise BadInput(
                f"--topology {self.name}: JAX's compiler for GPUs refuses it: {one_line(error)}"
            ) from None
        return list(described.devices)

    def bandwidth(self, mesh, kind: str, axes: tuple[str, ...]) -> float:
        """Returns the bytes per second that each GPU sends in a collective along these mesh axes.

        It is `hlo.Collective.sent` divided by the seconds that the busiest links need. Within a machine, each GPU sends
        over its own link. In a ring over several machines the GPUs of one take turns at the border, so each network
        port carries one of `local` parts of what a GPU sends. In an all-to-all each GPU sends through its own port to
        those of all other machines; a permutation sends all it has to one GPU.
        """
        hosts = np.vectorize(lambda device: device.process_index)(mesh.devices)
        along = [mesh.axis_names.index(axis) for axis in axes]
        hosts = np.moveaxis(hosts, along, range(len(along)))
        size = math.prod(hosts.shape[: len(along)])
        groups = hosts.reshape(size, -1).T
        return min(self.group_bandwidth(group, kind) for group in groups)

    def group_bandwidth(self, hosts: np.ndarray, kind: str) -> float:
        """Computes `bandwidth` for a group. hosts: int[GPUs], the machine of each."""
        size = len(hosts)
        local = int(np.unique(hosts, return_counts=True)[1].max())
        if local == size:
            return self.chip.link
        if kind == "all-to-all":
            across = self.chip.network * (size - 1) / (size - local)
        elif kind == "collective-permute":
            across = self.chip.network
        else:
            across = self.chip.network * local
        return min(self.chip.link, across)


def find(name: str) -> Machines | None:
    """Returns the machines of a name such as h100:8 or h100:2x8, or None if no card has this name."""
    match = NAME.fullmatch(name)
    if not match or match[1] not in CARDS:
        return None
    return Machines(name, match[1], int(match[2] or 1), int(match[3]))


def target_config(card: Card) -> str:
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
