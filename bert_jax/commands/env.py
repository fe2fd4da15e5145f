"""`env`: prints environment variables for a run as shell exports: `eval "$(bert-jax env)"`.

On a CPU, XLA allocates the memory of a step from the C library, and frees it after every step. Page faults of the
new memory cost up to half of a step, unless the C library asks the kernel for huge pages. It reads its settings when a
process starts, so they are environment variables.
"""

import os
import sys

from bert_jax import cli
from bert_jax.parallel.chips import TPUS, has_device

OPTIONS = []
ACCELERATORS = (*TPUS, "nvidia[0-9]*", "kfd", "dxg")
# A heap that keeps freed memory, too, would save another tenth. But batches of several lengths need blocks of several
# sizes, for which such a heap only grows.
MEMORY = "glibc.malloc.hugetlb=1"


def run(options, overrides) -> int:
    cli.refuse_overrides(overrides)
    is_cpu = "cpu" in os.environ.get("JAX_PLATFORMS", "" if has_device(ACCELERATORS) else "cpu")
    if sys.platform == "linux" and is_cpu and "GLIBC_TUNABLES" not in os.environ:
        with cli.report_write_errors("standard output"):
            print(f"export GLIBC_TUNABLES={MEMORY}", flush=True)
    return 0
