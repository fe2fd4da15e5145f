"""The initial state, computed on the CPU of the host instead of on GPUs.

XLA on GPUs merges the draws of all parameters of one shape into one kernel. On an H100 its compilation took 7 s for 3
layers of BERT-base, and was not finished after 75 s for 12. For a CPU that of 12 took 9 s, on two busy cores. Each
process holds the whole state on its host for a moment, 12 bytes a parameter.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from bert_jax.errors import BadInput


class OnHost(NamedTuple):
    """A lowered program () -> state for a CPU of this host. Compiled, it puts the state on the devices of `shardings`:
    each process puts the shards of its own devices."""

    lowered: Any
    shardings: Any

    def compile(self) -> Callable:
        program = self.lowered.compile()
        return lambda: jax.tree.map(put, program(), self.shardings)


def put(array, sharding) -> jax.Array:
    """Puts an array of the host or of one device on the devices of all processes."""
    return jax.make_array_from_callback(array.shape, sharding, np.asarray(array).__getitem__)


def lower(initialize: Callable, mesh: Mesh, shardings):
    """Lowers `initialize`, () -> state, which is called within `jax.set_mesh(mesh)`, for these shardings."""
    if mesh.devices.flat[0].platform == "gpu":
        return lower_on_host(initialize, mesh, shardings)
    return jax.jit(initialize, out_shardings=shardings).lower()


def lower_on_host(initialize: Callable, mesh: Mesh, shardings) -> OnHost:
    """Lowers `initialize` for a mesh of one CPU with the axes of `mesh`. Raises BadInput if JAX may not use the CPU."""
    try:
        cpus = jax.local_devices(backend="cpu")
    except RuntimeError:  # JAX knows no such platform
        raise BadInput("JAX_PLATFORMS: has no cpu, for the initial state; set cuda,cpu") from None
    devices = np.reshape(cpus[:1], [1] * len(mesh.axis_names))
    host = Mesh(devices, mesh.axis_names, axis_types=mesh.axis_types)
    with jax.set_mesh(host):
        program = jax.jit(initialize, out_shardings=NamedSharding(host, PartitionSpec()))
        return OnHost(program.lower(), shardings)
