"""The process that compiles: a compiler may crash, and must not crash the main process, too.

It does not import JAX before it is initialized: with the compiler for GPUs, but no GPU, JAX prints lines about that.
"""

import os
import signal
import threading
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from multiprocessing import get_context

from bert_jax.data.preparation.pool import end_with_parent


@cache
def pool() -> ProcessPoolExecutor:
    """Returns the pool of this one process."""
    return ProcessPoolExecutor(1, get_context("spawn"), initializer=start)


def stop() -> None:
    """Ends the process, if there is one: at the end of the main process it would print a warning."""
    if pool.cache_info().currsize:
        pool().shutdown()
        pool.cache_clear()


def start() -> None:
    """Initializes the process: it exits at Ctrl-C, even inside the compiler, and together with its parent.

    The compiler's output is discarded. JAX's compilation cache is off: only real devices could load these programs.
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    threading.Thread(target=end_with_parent, daemon=True).start()
    devnull = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(devnull, stream)
    import jax

    jax.config.update("jax_enable_compilation_cache", False)
