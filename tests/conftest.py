"""Shared setup of all tests: eight simulated CPU devices, a shared compilation cache, one finished run per worker.

Tests marked `full` run only with --full, before a release (`bash launch/test.sh --full`): they make many tries, wait
long, or need PyTorch. The others are the everyday suite.
"""

import gc
import os
import secrets
import sys
import tempfile
import zlib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# Before jax and TensorFlow are imported, and for the processes that tests start.
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"  # TensorFlow logs errors only
os.environ["TF_ENABLE_ONEDNN_OPTS"] = "0"  # otherwise it logs a notice at any log level
os.environ["TF_USE_LEGACY_KERAS"] = "1"  # as the command line sets it
os.environ.setdefault("GLIBC_TUNABLES", "")  # otherwise commands that compute start twice
os.environ.pop("JAX_COMPILATION_CACHE_DIR", None)  # leaves the developer's own cache unchanged
# Programs compile in a third of the time, and run slower. With --full they are compiled as for users.
CHEAP = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
CHEAP += " --xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"
if "--full" in sys.argv:
    os.environ["BERT_JAX_FULL"] = "1"  # for pytest's workers, which do not see the option here
if "BERT_JAX_FULL" not in os.environ:
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {CHEAP}"
# Processes that tests start import this checkout, even if another one is installed, and kits.
os.environ["PYTHONPATH"] = os.pathsep.join(map(str, (ROOT, ROOT / "tests")))
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"  # a TensorFlow with CUDA would take all memory of the GPU

import jax  # noqa: E402
import numpy as np  # noqa: E402
import pytest  # noqa: E402
from kits import result_tables, runs  # noqa: E402

jax.config.update("jax_num_cpu_devices", 8)
# A float32 run sets this, too. Without it here, a program would be compiled twice, before and after the first such run.
jax.config.update("jax_default_matmul_precision", "highest")

# Compilation is most of a small test's time. All workers of a user share one cache directory.
CACHE = os.path.join(tempfile.gettempdir(), f"bert_jax_tests_{os.getuid()}")
jax.config.update("jax_compilation_cache_dir", CACHE)
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)

# These files start first, in this order, so that no worker starts a long one at the end.
SLOWEST = """
    test_mutants.py faults/test_ended.py faults/test_damaged.py fuzz/test_fuzz.py convert/test_parity.py
    commands/test_evaluate_models.py test_ends.py commands/test_benchmark.py
    test_external_task.py test_micro_batches.py layers/test_attention.py runs/test_bucket.py parallel/test_cluster.py
    commands/test_import_model.py test_golden.py test_phases.py data/test_batch_files.py test_step.py
    parallel/test_meshes.py commands/test_export.py
    planning/test_plan.py test_wheel.py test_optimizer.py runs/test_jax_setup.py checkpoints/test_reader.py
""".split()

# The reasons for which CI may skip a test. A test that is skipped there for another reason fails.
MAY_SKIP = (
    "Skipped: no GPU",  # tests of cuDNN
    "Skipped: could not import 'torch': No module named 'torch'",  # of the extra `parity`; a benchmark compares with it
    "Skipped: needs the GPU compiler: pip install -e .[plan-gpu]",
    "Skipped: no namespaces",  # containers may not create one
    "Skipped: no ../shared/data",  # text and tasks that are not part of the repository
)


def pytest_addoption(parser):
    parser.addoption("--full", action="store_true", help="also run the tests marked `full`")
    parser.addoption("--tries", type=int, default=1, help="tries of each fault and each fuzz test")
    parser.addoption("--seed", type=int, help="seed of their draws; default with --full: a new one")


def pytest_generate_tests(metafunc):
    if "turn" in metafunc.fixturenames:
        metafunc.parametrize("turn", range(metafunc.config.getoption("--tries")))


@pytest.fixture
def draw(request, turn) -> np.random.Generator:
    """The random generator of a try of a fault; prints its seed, which pytest shows on failure."""
    option = request.config.getoption
    seed = option("--seed")
    if seed is None:
        seed = secrets.randbelow(1 << 31) if option("--full") else 0
    print(f"--seed {seed}")
    return np.random.default_rng([seed, zlib.crc32(request.node.name.encode())])


def pytest_collection_modifyitems(config, items):
    if not config.getoption("--full"):
        deselected = [item for item in items if item.get_closest_marker("full")]
        config.hook.pytest_deselected(items=deselected)
        items[:] = [item for item in items if not item.get_closest_marker("full")]
    order = {name: number for number, name in enumerate(SLOWEST)}
    root = Path(__file__).parent
    items.sort(key=lambda item: order.get(item.path.relative_to(root).as_posix(), len(order)))


def pytest_collection_finish():
    gc.freeze()  # the garbage collector takes a tenth of the time while it looks through modules


def refuse_skip(report):
    """In CI, turns a skip for a reason that is not in MAY_SKIP into a failure."""
    if report.skipped and "CI" in os.environ and not hasattr(report, "wasxfail"):
        *_, reason = report.longrepr
        if reason not in MAY_SKIP:
            report.outcome = "failed"
            report.longrepr = f"{reason}: may not be skipped here"


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    refuse_skip((yield).get_result())


@pytest.hookimpl(hookwrapper=True)
def pytest_make_collect_report(collector):
    refuse_skip((yield).get_result())  # for skips of whole files


def pytest_terminal_summary(terminalreporter, exitstatus, config):
    """Updates the result tables after a complete run with --full; docs/tests.md only if whole folders ran."""
    option = config.option
    if option.full and exitstatus in (0, 1) and not hasattr(config, "workerinput"):
        chosen = option.keyword or option.markexpr or option.deselect or option.maxfail
        chosen = chosen or getattr(option, "lf", False)
        if not chosen and all(Path(path).is_dir() for path in config.args):
            result_tables.update("tests.md", terminalreporter.stats)
        if option.tries > 1:
            result_tables.update("faults.md", terminalreporter.stats)


@pytest.fixture(scope="session")
def finished(tmp_path_factory):
    """(settings, workdir) of an undisturbed run of 20 steps and its store, shared by all tests of a worker: copy the
    workdir before changing anything."""
    return runs.train(tmp_path_factory.mktemp("finished"))
