"""`env`: prints environment variables for a run as shell exports: `eval "$(bert-jax env)"`.

On a CPU, XLA allocates the memory of a step from the C library, and frees it after every step. Page faults of the
new memory cost up to half of a step, unless the C library asks the kernel for huge pages and keeps what is freed. It
reads its settings when a process starts, so they are environment variables.
"""

import os
import sys

from bert_jax import cli
from bert_jax.parallel.chips import TPUS, has_device

OPTIONS = []
ACCELERATORS = (*TPUS, "nvidia[0-9]*", "kfd", "dxg")
# Huge pages, and one heap that keeps what is freed. Blocks over 1 GiB are mapped outside of it: with batches of several
# lengths their sizes differ, and a heap that had them, too, grew to 24 GB.
SETTINGS = "hugetlb=1", "arena_max=1", f"mmap_threshold={2**30}", f"trim_threshold={2**40}"
MEMORY = ":".join(f"glibc.malloc.{setting}" for setting in SETTINGS)


def run(options, overrides) -> int:
    cli.refuse_overrides(overrides)
    is_cpu = "cpu" in os.environ.get("JAX_PLATFORMS", "" if has_device(ACCELERATORS) else "cpu")
    if sys.platform == "linux" and is_cpu and "GLIBC_TUNABLES" not in os.environ:
        with cli.report_write_errors("standard output"):
            print(f"export GLIBC_TUNABLES={MEMORY}", flush=True)
    return 0
