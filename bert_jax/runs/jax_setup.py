"""Sets JAX up in a process: dtypes for the backend, matrix precision, the compilation cache."""

import os
import sys
from pathlib import Path

import jax
from ml_collections import ConfigDict

from bert_jax.data import download
from bert_jax.errors import BadInput
from bert_jax.runs import libtpu
from bert_jax.storage import remote


def start(config: ConfigDict) -> ConfigDict:
    """Sets up JAX for `config`; returns a copy whose dtype is resolved for the backend that is there."""
    config = config.copy_and_resolve_references()
    if config.dtype == "auto":
        config.dtype = "float32" if jax.default_backend() == "cpu" else "bfloat16"
    if config.dtype == "float32":
        # Float32 products are bfloat16 passes on TPU and TF32 on recent GPUs unless told otherwise.
        jax.config.update("jax_default_matmul_precision", "highest")
    if config.compilation_cache and not jax.config.jax_compilation_cache_dir:
        keep_programs(config.compilation_cache)
    if jax.process_count() == 1:
        libtpu.release()  # of several, JAX's service has SIGTERM
    return config


def keep_programs(name: str) -> None:
    """Has JAX keep what it compiles in the directory of that name."""
    directory, reason = programs(name)
    if reason:
        line = f"bert-jax: {directory}: {reason}: what is compiled is not kept (config.compilation_cache)"
        print(line, file=sys.stderr)
        return
    jax.config.update("jax_compilation_cache_dir", str(directory))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)


def programs(name: str) -> tuple[Path, str]:
    """The directory of compiled programs of that name, made where it is not there, which only its owner can read: they
    are executed; and why the one of `auto` cannot be used, or ''. Raises BadInput where another cannot."""
    directory, reason = made(download.cache() if name == "auto" else Path(name))
    if reason and name != "auto":
        raise BadInput(f"config.compilation_cache={name}: {directory}: {reason}")
    return directory, reason


def made(directory: Path) -> tuple[Path, str]:
    """A directory, made where it is not there, and why it cannot be written, or ''."""
    try:
        directory = directory.expanduser()
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        return directory, "" if os.access(directory, os.W_OK) else "not writable"
    except (OSError, RuntimeError) as error:  # a user without a home
        return directory, getattr(error, "strerror", None) or str(error)


def beside_programs(config: ConfigDict) -> tuple[Path | str | None, str]:
    """The directory in which `start` would have JAX keep programs, for what else is known of them, and why it cannot be
    used, or ''; None where nothing is to be kept. Raises BadInput as `programs`."""
    own = os.environ.get("JAX_COMPILATION_CACHE_DIR")
    if own and remote.is_address(own):
        return own, "an address"
    if own:
        return made(Path(own))
    return programs(config.compilation_cache) if config.compilation_cache else (None, "")
