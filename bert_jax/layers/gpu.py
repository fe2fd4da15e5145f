"""Barriers and flags of XLA's compiler for NVIDIA GPUs, and the device that a program is for.

Programs for GPUs of other makers are correct, but lack the barriers and the attention for NVIDIA GPUs.
"""

import os
import re

import jax
from jax.sharding import get_abstract_mesh

DETERMINISTIC = "--xla_gpu_deterministic_ops=true"
FLAGS = re.compile(
    r"--xla_gpu_(deterministic_ops|exclude_nondeterministic_ops)(=(true|1))?(\s|$)", re.IGNORECASE
)


def is_deterministic() -> bool:
    """Returns whether the user has XLA compile operations whose results are the same bits each time."""
    return bool(FLAGS.search(os.environ.get("XLA_FLAGS", "")))


def barrier(x):
    """Returns x: on a GPU behind a barrier, on other devices as it is."""
    return jax.lax.platform_dependent(
        x,
        cuda=jax.lax.optimization_barrier,
        default=lambda x: x,
    )


def is_target() -> bool:
    """Returns whether the program that is traced is for a GPU."""
    return find_device().platform == "gpu"


def find_device(mesh=None):
    """Returns a device that a program is compiled for: one of `mesh`, else of the mesh in context (both may be on
    another machine), else of this process."""
    mesh = mesh.abstract_mesh if mesh else get_abstract_mesh()
    return mesh.abstract_device or jax.local_devices()[0]
