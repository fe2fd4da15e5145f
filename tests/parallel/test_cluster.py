"""Several real processes, or other meshes, train the same run: batches, losses, checkpoints, signals, refusals."""

import json
import signal
import subprocess
import sys

import jax
import pytest
from kits import processes, saved_batches
from kits.runs import assert_same_run, load, pretraining, signal_at, use_devices

from bert_jax import config as configs
from bert_jax import train
from bert_jax.errors import BadInput
from bert_jax.evaluate import evaluate_run
from bert_jax.parallel import cluster
from bert_jax.runs import status
from bert_jax.runs.watchdog import Watchdog

STEPS = 20
half_a_run = saved_batches.half_a_run


# --- Other meshes, in this process ----------------------------------------------------------------


@pytest.mark.full
def test_a_run_may_resume_on_another_mesh(finished, half_a_run, monkeypatch):
    """Eight devices, then four with sharded parameters, then one."""
    (settings, undisturbed), run = finished, half_a_run
    with monkeypatch.context() as patch:
        use_devices(patch, 4)
        signal_at(patch, 15, signal.SIGTERM)
        four = load(settings, **{"mesh.fsdp": 2, "mesh.tensor": 2})
        assert train.pretrain(four, run) == 75
    assert 15 < status.status(run)["last_checkpoint"] < STEPS
    use_devices(monkeypatch, 1)
    assert train.pretrain(load(settings), run) == 0
    assert_same_run(run, undisturbed)


# --- Several processes ----------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    "number, devices, mesh",
    [
        (2, 4, {}),
        # The two devices of a process have the same rows, and different shards of each matrix.
        pytest.param(4, 2, {"mesh.fsdp": 2, "mesh.tensor": 2}, marks=pytest.mark.full),
    ],
)
def test_several_processes_have_the_losses_of_one(finished, tmp_path, number, devices, mesh):
    settings, undisturbed = finished
    run = tmp_path / "run"
    ended = processes.run(pretraining(settings, run, **mesh), tmp_path, number, devices)
    assert [process.code for process in ended] == [0] * number, ended
    # Only process 0 prints and writes.
    assert f"step {STEPS}/{STEPS}" in ended[0].output
    assert not any(process.output for process in ended[1:])
    files = {path.name for path in undisturbed.iterdir()} - {"report.html"}  # not in `settings`
    assert {path.name for path in run.iterdir()} == files
    assert_same_run(run, undisturbed, "train")
    assert_same_run(run, undisturbed)


@pytest.mark.full
def test_two_processes_evaluate_as_one(finished, tmp_path):
    command = ["evaluate", "--model", str(finished[1]), "--json", "-", "--config.mesh.fsdp=4"]
    main, other = processes.run(command, tmp_path, 2, 4)
    assert (main.code, other.code, other.output) == (0, 0, ""), (main, other)
    expected = evaluate_run(finished[1])
    found = json.loads(main.output[main.output.index("{") :])  # Gloo prints a line before it
    assert found.pop("headline") == expected.pop("headline")
    assert found == pytest.approx(expected, rel=1e-5)


# --- Refusals -------------------------------------------------------------------------------------


def assert_one_line(ended, *named, code=2):
    """Asserts that every process ended with this code and one line that contains `named`."""
    for process in ended:
        assert process.code == code, process
        assert len(process.errors.splitlines()) == 1, process.errors
        assert all(part in process.errors for part in ("bert-jax: ", *named)), process.errors


@pytest.mark.full
@pytest.mark.parametrize(
    "devices, override, named",
    [
        ([1, 1], "seed=7", "config.seed"),
        ([1, 1], "store=nowhere", "nowhere"),
        ([3, 1], "seed=12345", "devices: 3"),  # for example a wrong CUDA_VISIBLE_DEVICES on a host
    ],
)
def test_a_refusal_by_one_process_ends_all(finished, tmp_path, devices, override, named):
    key, _, value = override.partition("=")
    value = tmp_path / value if key == "store" else value
    settings = finished[0] | {"distributed.timeout": 5}
    values = [settings.pop(key, 12345), value]  # of the seed by default
    command = pretraining(settings, tmp_path / "run")
    changes = {number: [f"--config.{key}={each}"] for number, each in enumerate(values)}
    ended = processes.run(command, tmp_path / "output", len(devices), devices, changes)
    assert_one_line(ended, named)
    assert not (tmp_path / "run").exists()


SECOND_ERROR = """
from bert_jax.errors import BadInput
from bert_jax.parallel.cluster import Cluster

class Client:
    def key_value_set(self, *_): pass

def fail(reason, code):
    raise KeyboardInterrupt

cluster = Cluster(1, 2, Client())
cluster.on_failure = fail
with cluster.ending_together():
    raise BadInput("the first")
"""


def test_a_second_error_does_not_replace_the_first():
    ended = subprocess.run([sys.executable, "-c", SECOND_ERROR], capture_output=True, text=True)
    assert (ended.returncode, ended.stderr) == (2, "bert-jax: the first\n")


def test_a_missing_store_is_not_prepared_by_several(finished, tmp_path, monkeypatch):
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    absent = load(finished[0], store=tmp_path / "store")
    watchdog = Watchdog(absent.timeouts)
    with pytest.raises(BadInput, match=str(tmp_path / "store")):
        train.open_data(absent, train.Start(), cluster.Cluster(), watchdog)


def test_a_single_process_does_not_connect(monkeypatch):
    keys = configs.load("demo").distributed
    assert not cluster.initialize(keys)
    monkeypatch.setenv("JAX_NUM_PROCESSES", "1")
    monkeypatch.setenv("JAX_COORDINATOR_ADDRESS", "elsewhere:1")
    assert not cluster.initialize(keys)


@pytest.mark.parametrize(
    "variables, named",
    [
        ({"JAX_NUM_PROCESSES": "two"}, "JAX_NUM_PROCESSES=two"),
        ({"JAX_COORDINATOR_ADDRESS": "localhost:1"}, "config.distributed"),
        ({"JAX_NUM_PROCESSES": "2"}, "config.distributed"),
    ],
)
def test_incomplete_settings_are_refused(monkeypatch, variables, named):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(BadInput, match=named):
        cluster.initialize(configs.load("demo").distributed)


@pytest.mark.full
def test_a_process_that_does_not_find_the_others_ends(finished, tmp_path):
    command = pretraining(finished[0], tmp_path / "run", **{"distributed.timeout": 5})
    changes = {0: ["--config.distributed.processes=2"]}
    (ended,) = processes.run(command, tmp_path / "output", 1, [1], changes)
    assert ended.code == -signal.SIGABRT and "DEADLINE_EXCEEDED" in ended.errors
    assert not (tmp_path / "run").exists()
