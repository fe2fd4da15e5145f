"""Devices of TPU slices that are not here: the compiler knows them, and programs can be compiled for them."""

import importlib.util
import os
from contextlib import contextmanager

import jax
import pytest
from jax.experimental import topologies
from jax.experimental.compilation_cache import compilation_cache

# Or libtpu asks a server of Google's cloud what machine this is.
os.environ["TPU_SKIP_MDS_QUERY"] = "1"
# No TPU is used, so that several processes may compile for one at a time.
os.environ["ALLOW_MULTIPLE_LIBTPU_LOAD"] = "1"

HERE = importlib.util.find_spec("libtpu") is not None
needs_libtpu = pytest.mark.skipif(not HERE, reason="needs libtpu: pip install -e .[plan]")


def devices(name: str, **options) -> list:
    """Of a slice such as v5e:4x4; `num_slices` of them."""
    topology = topologies.get_topology_desc(platform="tpu", topology_name=name, **options)
    return list(topology.devices)


@contextmanager
def compiling():
    """Without JAX's compilation cache: it would keep these programs, and only a real TPU could read them back."""
    is_on = jax.config.jax_enable_compilation_cache
    try:
        jax.config.update("jax_enable_compilation_cache", False)
        compilation_cache.reset_cache()
        yield
    finally:
        jax.config.update("jax_enable_compilation_cache", is_on)
        compilation_cache.reset_cache()
