"""The tests' world: eight simulated CPU devices, compiled programs shared, one finished run a worker.

Tests marked `full` are of the campaign before a release (`bash launch/test.sh --full`): many tries, long waits,
PyTorch. The others are the everyday suite.
"""

import os
import secrets
import tempfile
import zlib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# Before jax and TensorFlow are imported, and for the processes that tests start.
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"  # of TensorFlow's own log, errors only
os.environ["TF_ENABLE_ONEDNN_OPTS"] = "0"  # or it announces them on stderr, whatever the log level
os.environ.pop("JAX_COMPILATION_CACHE_DIR", None)  # the developer's own programs
# For the processes that tests start: this checkout, also where another one is installed, and kits.
os.environ["PYTHONPATH"] = os.pathsep.join(map(str, (ROOT, ROOT / "tests")))
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"  # or a TensorFlow with CUDA takes all memory of the GPU

import jax  # noqa: E402
import numpy as np  # noqa: E402
import pytest  # noqa: E402
from kits import campaign, runs  # noqa: E402

jax.config.update("jax_num_cpu_devices", 8)
# As a run in float32 sets it: or a program would be compiled twice, by who comes first in a process.
jax.config.update("jax_default_matmul_precision", "highest")

# Compiling is most of a small test. One directory a user, who alone can write into it, for all workers.
jax.config.update(
    "jax_compilation_cache_dir",
    os.path.join(tempfile.gettempdir(), f"bert_jax_tests_{os.getuid()}"),
)
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)

# Files begin in this order, so that no worker is left with a long one at the end; then all others.
SLOWEST = """
    test_mutants.py faults/test_ended.py faults/test_damaged.py fuzz/test_fuzz.py convert/test_parity.py
    parallel/test_timeouts.py commands/test_evaluate_models.py test_ends.py commands/test_benchmark.py
    test_micro_batches.py models/test_attention.py runs/test_bucket.py parallel/test_processes.py
    commands/test_import_model.py test_golden.py test_phases.py data/test_batch_files.py test_step.py
    parallel/test_meshes.py commands/test_compare.py data/test_batch_files_refused.py commands/test_export.py
    planning/test_plan.py test_wheel.py test_optimizer.py runs/test_jax_setup.py checkpoints/test_reader.py
""".split()

# Where CI may skip: what it lacks on purpose. Anything else that is skipped there fails.
MAY_SKIP = (
    "Skipped: no GPU",  # of the tests of cuDNN
    "Skipped: could not import 'torch': No module named 'torch'",  # a benchmark beside PyTorch, of the extra `parity`
    "Skipped: could not import 'sky': No module named 'sky'",  # SkyPilot, which wants older libraries than ours
    "Skipped: no namespaces",  # who may not make one, as in a container
    "Skipped: no ../shared/data",  # text and tasks that are not part of the repository
)


def pytest_addoption(parser):
    parser.addoption("--full", action="store_true", help="the tests marked `full`, too")
    parser.addoption("--tries", type=int, default=1, help="of each fault and each door")
    parser.addoption("--seed", type=int, help="of what is drawn there; a fresh one with --full")


def pytest_generate_tests(metafunc):
    if "turn" in metafunc.fixturenames:
        metafunc.parametrize("turn", range(metafunc.config.getoption("--tries")))


@pytest.fixture
def draw(request, turn) -> np.random.Generator:
    """The random generator of a try of a fault; a failure shows its seed."""
    option = request.config.getoption
    seed = option("--seed")
    if seed is None:
        seed = secrets.randbelow(1 << 31) if option("--full") else 0
    print(f"--seed {seed}")
    return np.random.default_rng([seed, zlib.crc32(request.node.name.encode())])


def pytest_collection_modifyitems(config, items):
    if not config.getoption("--full"):
        left_out = [item for item in items if item.get_closest_marker("full")]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not item.get_closest_marker("full")]
    order = {name: number for number, name in enumerate(SLOWEST)}
    root = Path(__file__).parent
    items.sort(
        key=lambda item: order.get(item.path.relative_to(root).as_posix(), len(order)),
    )


def refuse_skip(report):
    """In CI, fails what was skipped for a reason that is not in MAY_SKIP."""
    if report.skipped and "CI" in os.environ and not hasattr(report, "wasxfail"):
        *_, reason = report.longrepr
        if reason not in MAY_SKIP:
            report.outcome, report.longrepr = "failed", f"{reason}: may not be skipped here"


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    refuse_skip((yield).get_result())


@pytest.hookimpl(hookwrapper=True)
def pytest_make_collect_report(collector):
    refuse_skip((yield).get_result())  # of a whole file


def pytest_terminal_summary(terminalreporter, exitstatus, config):
    """The tables of the campaign, if it was run to its end: that of folders if these were run whole."""
    option = config.option
    if option.full and exitstatus in (0, 1) and not hasattr(config, "workerinput"):
        chosen = option.keyword or option.markexpr or option.deselect or option.maxfail
        chosen = chosen or getattr(option, "lf", False)
        if not chosen and all(Path(place).is_dir() for place in config.args):
            campaign.update("tests.md", terminalreporter.stats)
        if option.tries > 1:
            campaign.update("faults.md", terminalreporter.stats)


@pytest.fixture(scope="session")
def finished(tmp_path_factory):
    """(settings, workdir) of an undisturbed run of 20 steps and its store, for all tests of a worker: copy the workdir
    before you change anything."""
    return runs.train(tmp_path_factory.mktemp("finished"))
