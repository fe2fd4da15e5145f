"""`env`: what a shell sets before a run, as exports: `eval "$(bert-jax env)"`.

On a CPU, XLA takes the memory of a step from the C library and gives it back after every step. To have it filled in by
the kernel each time costs up to a third of a step. The C library reads its settings when a process starts.
"""

import os
import sys

from bert_jax import cli
from bert_jax.parallel.chips import DEVICES, TPUS

OPTIONS = []
ACCELERATORS = (*TPUS, "nvidia[0-9]*", "kfd", "dxg")
# One heap for all threads, of huge pages, which keeps what is given back to it. Threads that compute ask it for large
# blocks only; many small ones, as when a vocabulary is trained, wait for each other.
MEMORY = (
    "glibc.malloc.hugetlb=1:glibc.malloc.arena_max=1:glibc.malloc.mmap_max=0"
    ":glibc.malloc.trim_threshold=1099511627776"
)


def run(options, overrides) -> int:
    cli.refuse(overrides)
    has_accelerator = any(path for name in ACCELERATORS for path in DEVICES.glob(name))
    is_cpu = "cpu" in os.environ.get("JAX_PLATFORMS", "" if has_accelerator else "cpu")
    if sys.platform == "linux" and is_cpu and "GLIBC_TUNABLES" not in os.environ:
        with cli.writing("standard output"):
            print(f"export GLIBC_TUNABLES={MEMORY}", flush=True)
    return 0
