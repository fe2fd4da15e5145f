"""TPU slices: their names, devices to compile for that are not attached, and the bandwidth of their links."""

import math
import os
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from typing import NamedTuple

import numpy as np
from jax.experimental import topologies

from bert_jax.errors import BadInput, one_line
from bert_jax.parallel.chips import CHIPS, Chip
from bert_jax.planning.custom_calls import FACTORS
from bert_jax.runs import environment


class Slice(NamedTuple):
    """A TPU slice: connected chips that are rented together. It has the attributes and methods of `gpus.Machines`."""

    name: str  # v5e:4x4
    kind: str  # a key of CHIPS
    shape: tuple[int, ...]

    attentions = ()  # implementations that a search tries
    has_memory_errors = True  # whether the compiler refuses a step that does not fit
    factors = FACTORS
    sources = (
        "memory, cycles and the schedule are the compiler's estimates; seconds of communication and of"
        " custom calls are arithmetic, from published bandwidths and"
        f" {FACTORS.likely} times a call's roofline ({FACTORS.least} to {FACTORS.most} times in the"
        " ranges); gathers, scatters, sorts and copies are not counted"
    )

    @property
    def chip(self) -> Chip:
        return CHIPS[self.kind]

    @property
    def chips(self) -> int:
        return math.prod(self.shape)

    @property
    def memory(self) -> float:
        """Bytes of a chip that a program may use."""
        return self.chip.memory

    @property
    def accelerator_type(self) -> str:
        """The name in Google Cloud, such as v5litepod-16."""
        return f"{self.chip.cloud}-{self.chips * self.chip.counted}"

    @property
    def rings(self) -> list[bool]:
        """Whether the links of each axis form a ring. In three dimensions all axes do, or none."""
        rings = [size % self.chip.ring == 0 for size in self.shape]
        return rings if len(self.shape) == 2 else [all(rings)] * 3

    def devices(self) -> list:
        """Returns JAX devices to compile for; none is attached. Raises BadInput if libtpu cannot be loaded."""
        environment.enlarge_stacks()
        os.environ |= environment.NO_TPU | {
            "TPU_ACCELERATOR_TYPE": self.accelerator_type,
            "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",  # otherwise only one process may load it
        }
        options = {}
        if self.chips < 4:
            options["chips_per_host_bounds"] = (1, 1, 1)
        if self.kind == "v4":
            options["chip_config_name"] = "megacore"  # both cores are one device, as on a real v4
        try:
            version("libtpu")  # requires the package, because `plan` reports its version
            described = topologies.get_topology_desc(
                platform="tpu", topology_name=self.name, **options
            )
        except (PackageNotFoundError, RuntimeError) as error:
            raise BadInput(
                f"libtpu cannot be loaded, run pip install -c constraints.txt -e '.[plan]': {one_line(error)}"
            ) from None
        environment.restore_sigterm()
        return list(described.devices)

    def bandwidth(self, mesh, kind: str, axes: tuple[str, ...]) -> float:
        """Returns the bytes per second that each chip sends in a collective along these mesh axes.

        It is `hlo.Collective.sent` divided by the seconds that the busiest links need.

        All-reduce, all-gather and reduce-scatter send from neighbour to neighbour, over all slice axes along which the
        chips of a group differ. A ring uses both links of a chip. A line uses one: the other carries the way back.

        All-to-all: each chip holds B bytes, and half of the bytes of an axis cross its middle. In a line of n chips,
        n B / 4 bytes cross one link in each direction; a ring has two such links. Axes send in parallel, so the slowest
        decides.

        A permutation sends in one direction over one link.

        If the neighbours in a group are s chips apart, s groups share the links between them.
        """
        lines = list(find_lines(self, mesh, axes))
        if kind == "all-to-all":
            group = math.prod(mesh.shape[axis] for axis in axes)
            slowest = min(
                (4 * line.links / (line.size * line.distance) for line in lines), default=1
            )
            links = (group - 1) / group * slowest
        elif kind == "collective-permute":
            links = 1 / max((line.distance for line in lines), default=1)
        else:
            links = sum(line.links / line.distance for line in lines) or 1  # 1: within a chip
        return links * self.chip.link


def all_slices() -> list[Slice]:
    return [
        Slice(f"{kind}:{shape}", kind, tuple(map(int, shape.split("x"))))
        for kind, chip in CHIPS.items()
        for shape in chip.shapes
    ]


def find(name: str) -> Slice | None:
    """Returns the slice of a name such as v5e:4x4 or v5litepod-16, or None."""
    for tpu in all_slices():
        if name in (tpu.name, tpu.accelerator_type, f"{tpu.kind}-{tpu.chips * tpu.chip.counted}"):
            return tpu
    return None


class Line(NamedTuple):
    """The chips of a group along an axis of a slice."""

    links: int  # of a chip that are used: 2 in a ring
    size: int  # chips
    distance: int  # between neighbours in the group


def find_lines(tpu: Slice, mesh, axes: tuple[str, ...]) -> Iterator[Line]:
    """Yields the line along each slice axis along which a group extends."""
    positions = [device.coords for device in mesh.devices.flat]
    coordinates = np.array(positions).reshape(*mesh.devices.shape, -1)
    along = [mesh.axis_names.index(axis) for axis in axes]
    groups = np.moveaxis(coordinates, along, range(len(along)))
    groups = groups.reshape(math.prod(groups.shape[: len(along)]), -1, coordinates.shape[-1])
    gaps = np.diff(np.sort(groups, axis=0), axis=0)
    sizes = 1 + (gaps > 0).sum(axis=0).max(axis=0)
    distances = gaps.max(axis=(0, 1), initial=0)
    for size, gap, length, is_ring in zip(sizes, distances, tpu.shape, tpu.rings, strict=False):
        if size > 1:
            is_closed = is_ring and size * gap >= length
            yield Line(2 if is_closed else 1, int(size), int(gap))
