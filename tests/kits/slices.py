"""Descriptions of the devices of TPU slices, for which programs can be compiled without a TPU."""

import importlib.util
import os
from contextlib import contextmanager

import jax
import pytest
from jax.experimental import topologies
from jax.experimental.compilation_cache import compilation_cache

# Otherwise libtpu queries the metadata server of Google Cloud.
os.environ["TPU_SKIP_MDS_QUERY"] = "1"
# No TPU is used, so several processes may load libtpu at the same time.
os.environ["ALLOW_MULTIPLE_LIBTPU_LOAD"] = "1"

HERE = importlib.util.find_spec("libtpu") is not None
needs_libtpu = pytest.mark.skipif(not HERE, reason="needs libtpu: pip install -e .[plan]")


def devices(name: str, **options) -> list:
    """Returns the devices of a slice such as v5e:4x4. options: of JAX's get_topology_desc, such as num_slices."""
    topology = topologies.get_topology_desc(platform="tpu", topology_name=name, **options)
    return list(topology.devices)


@contextmanager
def compiling():
    """Disables JAX's compilation cache: it would keep these programs, which only a real TPU can load."""
    is_on = jax.config.jax_enable_compilation_cache
    try:
        jax.config.update("jax_enable_compilation_cache", False)
        compilation_cache.reset_cache()
        yield
    finally:
        jax.config.update("jax_enable_compilation_cache", is_on)
        compilation_cache.reset_cache()
