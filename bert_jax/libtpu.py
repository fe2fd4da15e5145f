"""The library of TPUs on machines that have none: installed to plan for some, it would complain at every start."""

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


def hush() -> None:
    """To be called before JAX looks for devices. What the user has set stays."""
    if not any(path for pattern in TPUS for path in DEVICES.glob(pattern)):
        for name, value in ABSENT.items():
            os.environ.setdefault(name, value)


def release() -> None:
    """To be called once it is loaded, as JAX does when it looks for devices: it writes pages of addresses when the
    process is told to end, which now ends as it did before, or as Python code has said."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, signal.getsignal(signal.SIGTERM) or signal.SIG_DFL)
