"""How the process starts: `bert-jax`, or `python -m bert_jax`."""

import contextlib
import os
import sys
import traceback

from bert_jax import streams
from bert_jax.main import main

# For glibc: huge pages, and what was given back stays with the process.
MEMORY = "glibc.malloc.hugetlb=1:glibc.malloc.mmap_max=0:glibc.malloc.trim_threshold=1099511627776"


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
    """Starts this command again, as the same process, with memory that the kernel fills in once.

    On a CPU, XLA takes the memory of a step from the C library and gives it back after every step. Filling it in page
    by page costs up to a third of a step, huge pages as much beside other processes that use them. glibc reads these
    settings only when a process starts.
    """
    if sys.platform == "linux" and "GLIBC_TUNABLES" not in os.environ:
        os.environ["GLIBC_TUNABLES"] = MEMORY
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


if __name__ == "__main__":
    run()
