"""How the process starts: `bert-jax`, or `python -m bert_jax`."""

import contextlib
import os
import sys
import traceback
from pathlib import Path

from bert_jax import streams
from bert_jax.main import main

COMPUTING = ("pretrain", "benchmark", "evaluate")
DEVICES = Path("/dev")
ACCELERATORS = ("accel*", "vfio/[0-9]*", "nvidia[0-9]*")  # there
# For glibc: one heap for all threads, of huge pages, which keeps what is given back to it. Threads that compute ask it
# for large blocks only; those of other commands would wait for each other.
MEMORY = (
    "glibc.malloc.hugetlb=1:glibc.malloc.arena_max=1:glibc.malloc.mmap_max=0"
    ":glibc.malloc.trim_threshold=1099511627776"
)


def run() -> None:
    streams.open_closed()
    restart_with_lasting_memory()
    try:
        code = main()
    except SystemExit:
        raise  # of argparse
    except BaseException:
        with streams.lasting():
            traceback.print_exc()
        code = 1
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):
            stream.flush()
    if code == 1:
        # Threads of a library that has failed may never end, and would keep the process from ending.
        os._exit(code)
    sys.exit(code)


def restart_with_lasting_memory() -> None:
    """Starts a command that will compute on a CPU again, as the same process, with memory that is filled in once.

    XLA takes the memory of a step from the C library and gives it back after every step. To have it filled in by the
    kernel each time costs up to a third of a step. glibc reads these settings only when a process starts.
    """
    given = os.environ.get("GLIBC_TUNABLES")
    if given == MEMORY:
        del os.environ["GLIBC_TUNABLES"]  # processes that this one starts have other work
    elif given is None and sys.platform == "linux" and computes_here():
        os.environ["GLIBC_TUNABLES"] = MEMORY
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def computes_here() -> bool:
    """Whether this command will compute on a CPU, as far as can be told before JAX is there."""
    if not set(sys.argv[1:2]) & set(COMPUTING):
        return False
    found = (path for pattern in ACCELERATORS for path in DEVICES.glob(pattern))
    return os.environ.get("JAX_PLATFORMS") == "cpu" or not any(found)


if __name__ == "__main__":
    run()
