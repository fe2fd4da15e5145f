"""Memory that is filled in once: settings of the C library, which it reads only when a process starts.

On a CPU, XLA takes the memory of a step from the C library and gives it back after every step. To have it filled in by
the kernel each time costs up to a third of a step.
"""

import contextlib
import os
import sys

from bert_jax.runs.libtpu import DEVICES, TPUS

COMPUTING = {"pretrain", "benchmark", "evaluate"}
ACCELERATORS = (*TPUS, "nvidia[0-9]*", "kfd", "dxg")  # there
# One heap for all threads, of huge pages, which keeps what is given back to it. Threads that compute ask it for large
# blocks only; many small ones, as when a vocabulary is trained, wait for each other.
LASTING = (
    "glibc.malloc.hugetlb=1:glibc.malloc.arena_max=1:glibc.malloc.mmap_max=0"
    ":glibc.malloc.trim_threshold=1099511627776"
)
MARK = "lasting_memory"  # an option of the interpreter: this process has been started again


def restart() -> None:
    """Starts the command again, as the same process, with these settings; once, and not where the user has others."""
    if MARK in sys._xoptions:
        if os.environ.get("GLIBC_TUNABLES") == LASTING:
            del os.environ["GLIBC_TUNABLES"]  # processes that this one starts have other work
    elif "GLIBC_TUNABLES" not in os.environ and sys.platform == "linux":
        os.environ["GLIBC_TUNABLES"] = LASTING
        with contextlib.suppress(OSError, ValueError):  # it only makes a step faster
            os.execv(sys.executable, [sys.executable, "-X", MARK, *sys.orig_argv[1:]])
        del os.environ["GLIBC_TUNABLES"]


def computes_here(arguments: list[str]) -> bool:
    """Whether the command of these arguments will compute on a CPU, as far as can be told before JAX is there."""
    if not COMPUTING.intersection(arguments):
        return False
    asked = os.environ.get("JAX_PLATFORMS")
    if asked:
        return asked == "cpu"
    return not any(path for pattern in ACCELERATORS for path in DEVICES.glob(pattern))
