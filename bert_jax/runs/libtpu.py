"""What the library of TPUs is told before it is loaded, and how it is kept quiet on machines that have none."""

import importlib.util
import mmap
import os
import signal
import threading
from pathlib import Path

DEVICES = Path("/dev")
TPUS = ("accel[0-9]*", "vfio/[0-9]*")  # there
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
    if STACK not in given and knows(STACK):
        os.environ[FLAGS] = f"{given} --{STACK}={STACK_BYTES}".strip()


def knows(flag: str) -> bool:
    """Whether the library has the name of a flag in it; it says so in no other way."""
    path = os.environ.get("TPU_LIBRARY_PATH")
    found = importlib.util.find_spec("libtpu")
    try:
        if not path:
            path = Path(found.origin).with_name("libtpu.so")
        with open(path, "rb") as file:
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text:
                return text.find(flag.encode()) >= 0
    except (AttributeError, OSError, TypeError, ValueError):  # none is there, or it is empty
        return False


def release() -> None:
    """To be called once it is loaded, as JAX does when it looks for devices: it writes pages of addresses when the
    process is told to end, which now ends as it did before, or as Python code has said."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, signal.getsignal(signal.SIGTERM) or signal.SIG_DFL)
