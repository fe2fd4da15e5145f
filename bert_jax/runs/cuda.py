"""Configures XLA for NVIDIA GPUs, and silences its compiler on machines without one."""

import os
import sys
from contextlib import suppress
from importlib.metadata import version
from importlib.util import find_spec

from bert_jax.errors import BadInput, discarded
from bert_jax.parallel.chips import GPUS, TPUS, has_device

XLA_FLAGS = "XLA_FLAGS"
# By default XLA compiles and times many kernels for each matrix product and fusion, for minutes in all. With these
# flags cuBLAS computes the products; it chooses its kernels without compiling them.
FLAGS = {
    "xla_gpu_enable_triton_gemm": "false",
    "xla_gpu_experimental_enable_fusion_autotuner": "false",
}
# Of jaxlib: the first version that has these flags, and the first that was not tried. An unknown flag ends the process.
FIRST = (0, 10)
UNTRIED = (0, 13)
# The share of a GPU's memory that JAX allocates when it starts: its name, and an older one. JAX's own share is 0.75;
# what is left is for NCCL and cuDNN.
SHARES = ("XLA_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_MEM_FRACTION")
SHARE = 0.9


def configure() -> None:
    """Sets XLA's variables where there is a GPU. To be called before JAX finds devices.

    Without a GPU, the compiler of the extra `plan-gpu` is no device, and JAX finds it silently.
    """
    os.environ |= missing_variables()
    if is_installed() and not has_device((*GPUS, *TPUS)):
        os.environ.setdefault("JAX_PLATFORMS", "cpu")
        find_compiler()


def missing_variables() -> dict[str, str]:
    """Returns the environment variables that this process lacks; none without a GPU."""
    if not has_device(GPUS):
        return {}
    variables = with_flags()
    if not any(name in os.environ for name in SHARES):
        variables[SHARES[0]] = str(SHARE)
    return variables


def set_flags() -> None:
    """Adds the flags that the user has not set to XLA_FLAGS, also without a GPU, to compile for one."""
    os.environ |= with_flags()


def with_flags() -> dict[str, str]:
    """Returns XLA_FLAGS with those of FLAGS that it lacks; nothing if it has them, or jaxlib is not a known version."""
    flags = os.environ.get(XLA_FLAGS, "")
    missing = [f"--{name}={value}" for name, value in FLAGS.items() if name not in flags]
    release = tuple(map(int, version("jaxlib").split(".")[:2]))
    if not missing or not FIRST <= release < UNTRIED:
        return {}
    return {XLA_FLAGS: " ".join([*flags.split(), *missing])}


def memory_share() -> float:
    """Returns the share of a GPU's memory that a process may use. Raises BadInput for a variable that is no share."""
    for name in SHARES:
        text = os.environ.get(name)
        if not text:
            continue
        try:
            share = float(text)
        except ValueError:
            share = 0
        if not 0 < share <= 1:
            raise BadInput(f"{name}={text}: expected a number in (0, 1]")
        return share
    return SHARE


def is_installed() -> bool:
    """Returns whether JAX's compiler for GPUs is installed."""
    try:
        return any(find_spec(f"jax_plugins.xla_cuda{number}") for number in (12, 13))
    except ModuleNotFoundError:  # no plugin at all
        return False


def find_compiler() -> None:
    """Lets JAX find the compiler for GPUs, and discards standard error meanwhile: without a GPU the compiler and JAX
    print several lines about it."""
    if sys.stderr is None:  # it is closed
        return
    # Raised for no such platform, after all were found.
    with discarded(sys.stderr, 2), suppress(NotImplementedError):
        from jax.experimental import topologies

        topologies.get_topology_desc(platform="none")
