"""What the library of TPUs is told before it is loaded, and how it is kept quiet on machines that have none."""

import os
import signal
import threading
from importlib.metadata import PackageNotFoundError, version

from bert_jax.parallel.chips import DEVICES, TPUS

# Or it asks a server of Google's cloud what machine this is, and warns that none answers.
ABSENT = {
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_ACCELERATOR_TYPE": "v5litepod-1",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "TPU_MIN_LOG_LEVEL": "3",
}
FLAGS = "LIBTPU_INIT_ARGS"
# Threads of its compiler have stacks of 64 KiB, which some programs overflow: of SIGSEGV the process dies.
STACK, STACK_BYTES = "fibers_default_thread_stack_size", 8 << 20
KNOWN = (0, 0, 42), (0, 0, 52)  # versions that have the flag, first and last that were looked at


def settle() -> None:
    """To be called before JAX looks for devices. What the user has set stays."""
    if any(path for pattern in TPUS for path in DEVICES.glob(pattern)):
        widen()
    else:  # installed to plan for some, it would complain at every start
        for name, value in ABSENT.items():
            os.environ.setdefault(name, value)


def widen() -> None:
    """Gives threads of the compiler larger stacks, before it is loaded, if it is one that can: a flag that it does not
    know would end the process. What the user has set stays."""
    given = os.environ.get(FLAGS, "")
    if STACK not in given and knows_stack():
        os.environ[FLAGS] = f"{given} --{STACK}={STACK_BYTES}".strip()


def knows_stack() -> bool:
    if os.environ.get("TPU_LIBRARY_PATH"):
        return False
    try:
        installed = tuple(map(int, version("libtpu").split(".")[:3]))
    except (PackageNotFoundError, ValueError):
        return False
    return KNOWN[0] <= installed <= KNOWN[1]


def release() -> None:
    """To be called once it is loaded, as JAX does when it looks for devices: it writes pages of addresses when the
    process is told to end, which now ends as it did before, or as Python code has said."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, signal.getsignal(signal.SIGTERM) or signal.SIG_DFL)
