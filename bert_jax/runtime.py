"""What a process sets up: dtypes for this backend, matrix precision, the compilation cache, signals."""

import signal
from contextlib import contextmanager
from pathlib import Path

import jax
from ml_collections import ConfigDict


def start(config: ConfigDict) -> ConfigDict:
    """Sets up JAX for `config`; returns a copy whose dtype is resolved for the backend that is there."""
    config = config.copy_and_resolve_references()
    if config.dtype == "auto":
        config.dtype = "float32" if jax.default_backend() == "cpu" else "bfloat16"
    if config.dtype == "float32":
        # Float32 products are bfloat16 passes on TPU and TF32 on recent GPUs unless told otherwise.
        jax.config.update("jax_default_matmul_precision", "highest")
    if config.compilation_cache and not jax.config.jax_compilation_cache_dir:
        directory = Path(config.compilation_cache).expanduser()
        jax.config.update("jax_compilation_cache_dir", str(directory))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)
    return config


# Exit codes of a run that was told to stop and has saved.
PREEMPTED, INTERRUPTED = 75, 130
SIGNALS = {signal.SIGTERM: PREEMPTED, signal.SIGINT: INTERRUPTED}


class Stop:
    """Whether to stop after this step, and with which exit code."""

    code = 0


@contextmanager
def stop_signals():
    """Within it SIGTERM and the first Ctrl-C only set the code; a second Ctrl-C stops at once."""
    stop = Stop()

    def handle(number, _):
        if stop.code and number == signal.SIGINT:
            raise KeyboardInterrupt
        stop.code = SIGNALS[number]

    before = {number: signal.signal(number, handle) for number in SIGNALS}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
