"""Machines with NVIDIA GPUs: their names, devices to compile for that are not attached, and their bandwidth."""

import re
from typing import NamedTuple

import numpy as np
from jax.experimental import topologies

from bert_jax.errors import BadInput, one_line
from bert_jax.parallel import cards
from bert_jax.parallel.cards import CARDS, Card
from bert_jax.planning.gpu_operations import FACTORS
from bert_jax.runs import cuda

NAME = re.compile(r"([\w-]+):(?:([1-9]\d*)x)?([1-9]\d*)")


class Machines(NamedTuple):
    """Equal machines with GPUs of one kind; alike with `tpus.Slice`, what a step can be planned for."""

    name: str  # h100:8, or h100:2x8 for two machines
    kind: str  # a key of CARDS
    hosts: int
    per_host: int  # GPUs

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
    def accelerator_type(self) -> str:
        return f"{self.chips} x {self.chip.device_kind}"

    def devices(self) -> list:
        """Returns JAX devices to compile for; none is attached. Raises BadInput if JAX has no compiler for GPUs."""
        cuda.set_flags()
        try:
            described = topologies.get_topology_desc(
                platform="cuda",
                target_config=cards.describe(self.chip),
                topology=f"1x{self.hosts}x{self.per_host}",
            )
        except (NotImplementedError, RuntimeError) as error:
            raise BadInput(
                f"--topology {self.name}: JAX has no compiler for GPUs, run pip install -e"
                f" '.[plan-gpu]': {one_line(error)}"
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
        size = int(np.prod(hosts.shape[: len(along)]))
        group = hosts.reshape(size, -1)[:, 0]
        local = int(np.unique(group, return_counts=True)[1].max())
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
