"""Sets up JAX in a process: the dtype for the backend, matmul precision, the compilation cache."""

import os
from pathlib import Path

import jax
from ml_collections import ConfigDict

from bert_jax.data import download
from bert_jax.errors import BadInput, log, one_line
from bert_jax.runs import environment
from bert_jax.storage import remote


def resolve(config: ConfigDict, backend: str = "") -> ConfigDict:
    """Returns a copy of the config with the `dtype` that `auto` stands for on devices of a kind, see `find_backend`: by
    default on those of this process."""
    config = config.copy_and_resolve_references()
    backend = backend or find_backend()
    if config.dtype == "auto":
        config.dtype = "float32" if backend == "cpu" else "bfloat16"
    return config


def precise(config: ConfigDict):
    """Returns a context in which products of float32 are exact. By default they are bfloat16 passes on TPUs, and TF32
    on recent GPUs."""
    return jax.default_matmul_precision("highest" if config.dtype == "float32" else None)


def start(config: ConfigDict) -> ConfigDict:
    """Sets up JAX in this process for a config; returns the config as `resolve` does."""
    config = resolve(config)
    if config.dtype == "float32":
        jax.config.update("jax_default_matmul_precision", "highest")  # see `precise`
    if not jax.config.jax_compilation_cache_dir:
        directory = cache_directory(config)
        if directory:
            jax.config.update("jax_compilation_cache_dir", str(directory))
            jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)
    if jax.process_count() == 1:
        environment.restore_sigterm()  # with several processes, JAX's preemption service handles SIGTERM
    return config


def find_backend() -> str:
    """Returns the kind of JAX's devices: cpu, gpu or tpu. Raises BadInput, which names JAX_PLATFORMS, without any."""
    try:
        return jax.default_backend()
    except (AssertionError, RuntimeError) as error:
        name = f"JAX_PLATFORMS={os.environ.get('JAX_PLATFORMS', '')}"
        raise BadInput(f"{name}: JAX finds no such device ({one_line(error)})") from None


def cache_directory(config: ConfigDict) -> Path | None:
    """Returns the directory of the compilation cache, created if necessary; None for no cache.

    Only its owner may write to it, since compiled programs are executed. If the default directory cannot be used, there
    is no cache; raises BadInput if the directory that the config names cannot be used.
    """
    configured = config.compilation_cache
    name = os.environ.get("JAX_COMPILATION_CACHE_DIR") or configured
    if not name or remote.is_address(name):
        return None
    directory = download.cache() if name == "auto" else Path(name)
    try:
        directory = directory.expanduser()
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not os.access(directory, os.W_OK):
            raise PermissionError("not writable")
        status = directory.stat()
        if name == "auto" and (status.st_uid != os.getuid() or status.st_mode & 0o022):
            raise PermissionError("other users can write to it")
        return directory
    except (OSError, RuntimeError) as error:  # RuntimeError: the user has no home directory
        text = f"{directory}: {one_line(error)}"
        if name == configured != "auto":
            raise BadInput(f"config.compilation_cache={name}: {text}") from None
        log(f"bert-jax: {text}: compiled programs are not cached")
        return None
