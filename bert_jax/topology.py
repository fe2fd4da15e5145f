"""TPU slices by name: what is published of their chips, and devices of slices that are not here, to compile for.

Figures are those of Google's documentation (docs.cloud.google.com/tpu/docs/v5e and its neighbours). Its bandwidth of a
chip is that of all its links; cycles a second are what makes the published peak of the published matrix units.
"""

import math
import os
import re
from collections.abc import Iterator
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from typing import NamedTuple

import numpy as np

from bert_jax import libtpu
from bert_jax.errors import BadInput, one_line

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
    hertz: float  # cycles a second
    link: float  # bytes a second that a chip sends over one link; an axis of a slice has two, one a direction
    ring: int  # an axis of a slice is a ring where its size is a multiple of this, a line where not
    shapes: tuple[str, ...]  # in which slices are let


CHIPS = {
    "v2": Chip(
        "v2", "TPU v2", 2, 2, 14.96 * GIB, 45e12, 0.70e9, 15.5e9, 16, ("2x2", "4x4", "8x8", "16x16")
    ),
    "v3": Chip(
        "v3",
        "TPU v3",
        2,
        2,
        30.96 * GIB,
        123e12,
        0.94e9,
        20.5e9,
        32,
        ("2x2", "4x4", "8x8", "16x16"),
    ),
    "v4": Chip("v4", "TPU v4", 2, 1, 30.75 * GIB, 275e12, 1.05e9, 50e9, 4, CUBES),
    "v5e": Chip("v5litepod", "TPU v5 lite", 1, 1, 15.75 * GIB, 197e12, 1.50e9, 50e9, 16, FLAT),
    "v5p": Chip("v5p", "TPU v5", 2, 1, 95.74 * GIB, 459e12, 1.75e9, 100e9, 4, CUBES),
    "v6e": Chip("v6e", "TPU v6 lite", 1, 1, 31.25 * GIB, 918e12, 1.75e9, 100e9, 16, FLAT),
}


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
    kind = re.split("[:-]", name)[0]
    kind = next((key for key, chip in CHIPS.items() if kind in (key, chip.cloud)), None)
    if kind:
        raise BadInput(f"--topology {name}: {kind} comes as {' '.join(CHIPS[kind].shapes)}")
    kinds = "; ".join(f"{kind}: {' '.join(chip.shapes)}" for kind, chip in CHIPS.items())
    raise BadInput(f"--topology {name}: expected all, v5e, v5e:4x4 or v5litepod-16, of {kinds}")


def of(places) -> Slice:
    """The slice that these devices are."""
    coordinates = np.array([device.coords for device in places])
    shape = tuple(1 + coordinates.max(axis=0))
    return next(
        one
        for one in known()
        if one.chip.device_kind == places[0].device_kind and shape == (*one.shape, 1)[: len(shape)]
    )


def devices(one: Slice) -> list:
    """Devices of JAX to compile for, none of which is there. Raises BadInput without a libtpu that can be loaded."""
    try:
        version("libtpu")  # the package, not the module alone: `plan` says which it was
    except PackageNotFoundError:
        reason = "not installed, it compiles for TPUs; pip install 'bert_jax[plan]'"
        raise BadInput(f"libtpu: {reason}") from None
    libtpu.widen()
    os.environ |= libtpu.ABSENT | {
        "TPU_ACCELERATOR_TYPE": one.accelerator_type,
        "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",  # it wants to be alone
    }
    from jax.experimental import topologies

    options = {}
    if one.chips < 4:
        options["chips_per_host_bounds"] = (1, 1, 1)
    if one.kind == "v4":
        options["chip_config_name"] = "megacore"  # both cores as one device, as on a real one
    try:
        described = topologies.get_topology_desc(platform="tpu", topology_name=one.name, **options)
    except RuntimeError as error:
        reason = one_line(error)
        raise BadInput(
            f"libtpu: cannot be loaded, pip install 'bert_jax[plan]': {reason}"
        ) from None
    libtpu.release()
    return list(described.devices)


@lru_cache
def bandwidth(one: Slice, mesh, kind: str, axes: tuple[str, ...]) -> float:
    """Bytes a second that each chip sends in a collective along these axes of a mesh of the slice's devices: its
    `program.Collective.sent`, by the seconds that the links need which have most to carry.

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
