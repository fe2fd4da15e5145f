"""TPU slices by name, and devices of slices that are not here, to compile for."""

import math
import os
from collections.abc import Iterator
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from typing import NamedTuple

import numpy as np
from jax.experimental import topologies

from bert_jax.errors import BadInput, one_line
from bert_jax.parallel.chips import CHIPS, Chip
from bert_jax.runs import libtpu


class Slice(NamedTuple):
    """Chips that are rented together."""

    name: str  # v5e:4x4
    kind: str  # a key of CHIPS
    shape: tuple[int, ...]

    @property
    def chip(self) -> Chip:
        return CHIPS[self.kind]

    @property
    def chips(self) -> int:
        return math.prod(self.shape)

    @property
    def accelerator_type(self) -> str:
        """As Google Cloud calls it: v5litepod-16."""
        return f"{self.chip.cloud}-{self.chips * self.chip.counted}"

    @property
    def rings(self) -> list[bool]:
        """Of each axis; in three dimensions all are, or none."""
        rings = [size % self.chip.ring == 0 for size in self.shape]
        return rings if len(self.shape) == 2 else [all(rings)] * 3


def known() -> list[Slice]:
    return [make(kind, shape) for kind, chip in CHIPS.items() for shape in chip.shapes]


def make(kind: str, shape: str) -> Slice:
    return Slice(f"{kind}:{shape}", kind, tuple(map(int, shape.split("x"))))


def find(name: str) -> Slice:
    """The slice of a name such as v5e:4x4 or v5litepod-16; raises BadInput where there is none."""
    for one in known():
        if name in (one.name, one.accelerator_type, f"{one.kind}-{one.chips * one.chip.counted}"):
            return one
    kinds = "; ".join(f"{kind}: {' '.join(chip.shapes)}" for kind, chip in CHIPS.items())
    raise BadInput(f"--topology {name}: expected all, v5e, v5e:4x4 or v5litepod-16, of {kinds}")


def devices(one: Slice) -> list:
    """Devices of JAX to compile for, none of which is there. Raises BadInput without a libtpu that can be loaded."""
    libtpu.enlarge_stacks()
    os.environ |= libtpu.ABSENT | {
        "TPU_ACCELERATOR_TYPE": one.accelerator_type,
        "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",  # it wants to be alone
    }
    options = {}
    if one.chips < 4:
        options["chips_per_host_bounds"] = (1, 1, 1)
    if one.kind == "v4":
        options["chip_config_name"] = "megacore"  # both cores as one device, as on a real one
    try:
        version("libtpu")  # the package, not the module alone: `plan` says which it was
        described = topologies.get_topology_desc(platform="tpu", topology_name=one.name, **options)
    except (PackageNotFoundError, RuntimeError) as error:
        how = "pip install 'bert_jax[plan]'"
        raise BadInput(f"libtpu: cannot be loaded, {how}: {one_line(error)}") from None
    libtpu.restore_sigterm()
    return list(described.devices)


@lru_cache
def bandwidth(one: Slice, mesh, kind: str, axes: tuple[str, ...]) -> float:
    """Bytes a second that each chip sends in a collective along these axes of a mesh of the slice's devices: its
    `hlo.Collective.sent`, by the seconds that the links need which have most to carry.

    Sums, gathers and scatters go from neighbour to neighbour, over every axis of the slice along which a group's chips
    differ: both links of a ring, one of a line, where what goes there has to come back.

    All to all: half of what the chips of an axis hold, B bytes each, goes over its middle. Of n in a line n B / 4 go
    each way over one link; in a ring there are two. The axis that needs longest decides; they send at once.

    A permutation goes one way, over one link.

    Where the neighbours of a group are s chips apart, s groups share the links between them.
    """
    lines = list(passed(one, mesh, axes))
    if kind == "all-to-all":
        group = math.prod(mesh.shape[axis] for axis in axes)
        links = (group - 1) / group * min((4 * n / (size * s) for n, size, s in lines), default=1)
    elif kind == "collective-permute":
        links = 1 / max((s for _, _, s in lines), default=1)
    else:
        links = sum(n / s for n, _, s in lines) or 1  # between the devices of a chip: as over one
    return links * one.chip.link


def passed(one: Slice, mesh, axes: tuple[str, ...]) -> Iterator[tuple[int, int, int]]:
    """(links of a chip, chips of a group, how far these are apart) of each axis of a slice along which they differ."""
    coordinates = np.array([device.coords for device in mesh.devices.flat])
    coordinates = coordinates.reshape(*mesh.devices.shape, -1)
    along = [mesh.axis_names.index(axis) for axis in axes]
    groups = np.moveaxis(coordinates, along, range(len(along)))
    groups = groups.reshape(math.prod(groups.shape[: len(along)]), -1, coordinates.shape[-1])
    gaps = np.diff(np.sort(groups, axis=0), axis=0)
    sizes = 1 + (gaps > 0).sum(axis=0).max(axis=0)
    apart = gaps.max(axis=(0, 1), initial=0)
    for size, gap, whole, is_ring in zip(sizes, apart, one.shape, one.rings, strict=False):
        if size > 1:
            yield (2 if is_ring and size * gap >= whole else 1), int(size), int(gap)
