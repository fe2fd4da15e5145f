"""Settings of glibc's malloc for training on a CPU: huge pages, and one heap that keeps what is freed.

XLA allocates the memory of a step from the C library, and frees it after every step. Page faults of the new memory cost
up to half of a step, unless glibc asks the kernel for huge pages and keeps what is freed. It reads its settings when a
process starts, so they are an environment variable, and a process that lacks them starts again.
"""

import os
import platform
import sys

from bert_jax.parallel.chips import GPUS, TPUS, has_device

ACCELERATORS = (*TPUS, *GPUS, "kfd")
VARIABLE = "GLIBC_TUNABLES"
# Huge pages, and one heap that keeps what is freed. Blocks over 1 GiB are mapped outside of it: with batches of several
# lengths their sizes differ, and a heap that had them, too, grew to 24 GB.
MEMORY = (
    "glibc.malloc.hugetlb=1:glibc.malloc.arena_max=1"
    f":glibc.malloc.mmap_threshold={2**30}:glibc.malloc.trim_threshold={2**40}"
)


def missing_variables() -> dict[str, str]:
    """Returns the environment variables that this process lacks: none where JAX computes on an accelerator, where the C
    library is another one, or where the user has set them, also to the empty string."""
    platforms = os.environ.get("JAX_PLATFORMS", "" if has_device(ACCELERATORS) else "cpu")
    is_on_cpu = platforms.split(",")[0] == "cpu"
    has_glibc = platform.libc_ver()[0] == "glibc"
    if is_on_cpu and has_glibc and VARIABLE not in os.environ:
        return {VARIABLE: MEMORY}
    return {}


def restart_process() -> None:
    """Starts the program of this process again, with the same process id, if it lacks the settings."""
    variables = missing_variables()
    if variables:
        command = [sys.executable, *sys.orig_argv[1:]]
        os.execve(sys.executable, command, os.environ | variables)
