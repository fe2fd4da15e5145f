"""Configures XLA's compiler for NVIDIA GPUs, and silences it on machines without one."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from importlib.util import find_spec

from bert_jax.parallel.chips import GPUS, TPUS, has_device

VARIABLE = "XLA_FLAGS"
# XLA compiles and times many kernels for each matrix product and fusion, for minutes in all. Without these, cuBLAS
# computes the products, whose own choice takes no compilation.
FLAGS = {
    "xla_gpu_enable_triton_gemm": "false",
    "xla_gpu_experimental_enable_fusion_autotuner": "false",
}
# Of jaxlib: the first version that has these flags, and the first that was not tried. An unknown flag ends the process.
FIRST = (0, 10)
UNTRIED = (0, 13)


def configure() -> None:
    """Sets XLA's flags where there is a GPU. To be called before JAX finds devices.

    Without a GPU, the extra `plan-gpu` has a compiler that JAX would take for a GPU, unless JAX_PLATFORMS is set.
    """
    os.environ |= missing_variables()
    if is_compiler_alone() and not has_device(TPUS):
        os.environ.setdefault("JAX_PLATFORMS", "cpu")


def set_flags() -> None:
    """Adds the flags that the user has not set to XLA_FLAGS, also without a GPU, to compile for one."""
    os.environ |= with_flags()


def missing_variables() -> dict[str, str]:
    """Returns the environment variables that this process lacks; none without a GPU."""
    return with_flags() if has_device(GPUS) else {}


def with_flags() -> dict[str, str]:
    """Returns XLA_FLAGS with those of FLAGS that it lacks; nothing if it has them, or jaxlib is not a known version."""
    flags = os.environ.get(VARIABLE, "")
    missing = [f"--{name}={value}" for name, value in FLAGS.items() if name not in flags]
    release = tuple(map(int, version("jaxlib").split(".")[:2]))
    if not missing or not FIRST <= release < UNTRIED:
        return {}
    return {VARIABLE: " ".join([*flags.split(), *missing])}


def is_compiler_alone() -> bool:
    """Returns whether JAX's compiler for GPUs is installed on a machine without one."""
    return is_installed() and not has_device(GPUS)


def is_installed() -> bool:
    """Returns whether JAX's compiler for GPUs is installed."""
    try:
        return find_spec("jax_plugins.xla_cuda12") is not None
    except ModuleNotFoundError:  # no plugin at all
        return False


@contextmanager
def silence() -> Iterator[None]:
    """Discards standard error within the context, if the compiler is installed but there is no GPU: it says so in
    several lines as soon as JAX finds devices."""
    if not is_compiler_alone():
        yield
        return
    sys.stderr.flush()
    saved = os.dup(2)
    devnull = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(devnull, 2)
        yield
    finally:
        sys.stderr.flush()
        os.dup2(saved, 2)
        os.close(saved)
        os.close(devnull)
