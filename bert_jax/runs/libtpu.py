"""Configures libtpu before it is loaded, and silences it on machines without TPUs."""

import os
import signal
from importlib.metadata import PackageNotFoundError, version

from bert_jax.errors import may_handle_signals
from bert_jax.parallel.chips import TPUS, has_device

# Without these, libtpu queries Google Cloud's metadata server, and warns that it does not answer.
ABSENT = {
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_ACCELERATOR_TYPE": "v5litepod-1",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "TPU_MIN_LOG_LEVEL": "3",
}
FLAGS = "LIBTPU_INIT_ARGS"
# The compiler's threads have stacks of 64 KiB by default; some programs overflow them, and the process dies of SIGSEGV.
STACK = "fibers_default_thread_stack_size"
STACK_BYTES = 8 << 20
# The first and the last version known to have the flag.
FIRST = (0, 0, 42)
LAST = (0, 0, 52)


def configure() -> None:
    """Sets libtpu's environment variables unless the user has set them. To be called before JAX finds devices."""
    if has_device(TPUS):
        enlarge_stacks()
    else:  # libtpu may be installed for `plan` alone
        os.environ |= ABSENT | os.environ


def enlarge_stacks() -> None:
    """Enlarges the stacks of the compiler's threads, unless the user has set their size. Does nothing for versions that
    may not have the flag: an unknown flag ends the process."""
    flags = os.environ.get(FLAGS, "")
    if STACK not in flags and has_stack_flag():
        os.environ[FLAGS] = f"{flags} --{STACK}={STACK_BYTES}".strip()


def has_stack_flag() -> bool:
    """Returns whether the installed libtpu is known to have the flag."""
    if os.environ.get("TPU_LIBRARY_PATH"):
        return False
    try:
        installed = tuple(map(int, version("libtpu").split(".")[:3]))
    except (PackageNotFoundError, ValueError):
        return False
    return FIRST <= installed <= LAST


def restore_sigterm() -> None:
    """Restores the handler of SIGTERM: libtpu's prints long stack traces. To be called after libtpu is loaded, that is,
    after JAX has found devices."""
    if may_handle_signals():
        signal.signal(signal.SIGTERM, signal.getsignal(signal.SIGTERM) or signal.SIG_DFL)
