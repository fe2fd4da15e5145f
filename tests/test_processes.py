"""Several real processes are the same run as one: batches, losses, checkpoints, stops and refusals."""

import json
import shutil
import signal
import time
from functools import partial

import jax
import numpy as np
import processes
import pytest
from processes import FAIL, RECORD, digests
from small import SMALL, overrides, write_corpus

from bert_jax import config, pretrain, sharding, status, trained, workdir
from bert_jax.errors import BadInput

CLOSE = 1e-5  # relative, float32
STEPS = 20


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """Settings of a prepared store, and a directory that holds the undisturbed run of eight devices in one process,
    with the batches that its devices got."""
    directory = tmp_path_factory.mktemp("world")
    write_corpus(directory / "corpus.txt", documents=60)
    settings = SMALL | {
        "corpus.source": str(directory / "corpus.txt"),
        "store": str(directory / "store"),
        "log.every": 1,
    }
    (directory / "batches").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sharding, "to_devices", processes.record(directory / "batches", 0))
        assert pretrain.pretrain(load(settings), directory / "run") == 0
    return settings, directory


def load(settings, **changes):
    return config.load("demo", overrides(settings | changes))


def arguments(settings, workdir, **changes):
    keys = [f"--config.{override}" for override in overrides(settings | changes)]
    return ["pretrain", "--config", "demo", *keys, "--workdir", str(workdir)]


def lines(workdir):
    return [json.loads(line) for line in (workdir / "metrics.jsonl").read_text().splitlines()]


def assert_same_run(workdir, undisturbed, bitwise_to: int = 0):
    """The same lines, losses and parameters, to float precision; of steps up to `bitwise_to` to the bit."""
    ours, theirs = lines(workdir), lines(undisturbed)
    assert [(x["step"], x["split"]) for x in ours] == [(x["step"], x["split"]) for x in theirs]
    for a, b in zip(ours, theirs, strict=True):
        tolerance = 0 if a["step"] <= bitwise_to else CLOSE
        for key in a.keys() & {"loss", "mlm_loss", "nsp_loss", "gradient_norm"}:
            assert a[key] == pytest.approx(b[key], rel=tolerance, abs=0), (a["step"], key)
    assert_close(params(workdir), params(undisturbed))


def params(workdir):
    return trained.open_run(workdir).params


def assert_close(a, b):
    # Adam without bias correction divides tiny gradients by their own size: their sign is all that is left.
    jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-3, atol=1e-4), a, b)


def assert_one_line(ended, *parts):
    """Every process has ended with bad input, and with one and the same kind of line."""
    for process in ended:
        assert process.code == 2, process
        assert len(process.errors.splitlines()) == 1, process.errors
        assert process.errors.startswith("bert-jax: ")
        for part in parts:
            assert part in process.errors


def test_one_device(world, tmp_path, monkeypatch):
    settings, directory = world
    one = partial(sharding.make_mesh, devices=jax.devices()[:1])
    monkeypatch.setattr(sharding, "make_mesh", one)
    assert pretrain.pretrain(load(settings), tmp_path / "run") == 0
    assert_same_run(tmp_path / "run", directory / "run")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "devices", "mesh"),
    [
        (2, 4, {}),
        (2, 1, {}),
        (4, 2, {"mesh.fsdp": 2, "mesh.tensor": 2}),
    ],
)
def test_several_processes_are_the_same_run(world, tmp_path, number, devices, mesh):
    settings, directory = world
    workdir, batches = tmp_path / "run", tmp_path / "batches"
    batches.mkdir()
    command = arguments(settings, workdir, **mesh)
    ended = processes.run(command, tmp_path, number, devices, **{RECORD: str(batches)})
    assert [process.code for process in ended] == [0] * number, ended
    # The first alone speaks and writes.
    assert f"step {STEPS}/{STEPS}" in ended[0].output
    assert not any(process.output for process in ended[1:])
    assert {path.name for path in workdir.iterdir()} == {
        path.name for path in (directory / "run").iterdir()
    }
    saved = config.load(str(workdir / "config.json"))
    assert config.differences(saved, load(settings | mesh)) == {}
    assert status.status(workdir)["state"] == "done"
    assert_same_run(workdir, directory / "run")
    # The same global batches, of which each process has read its own rows alone.
    ours, theirs = digests(batches), digests(directory / "batches")
    assert [digest for digest, _ in ours] == [digest for digest, _ in theirs]
    rows = settings["phases.main.batch"]
    assert all(read == [rows // number] * number for _, read in ours[:STEPS])


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 75), (signal.SIGINT, 130)])
def test_a_signal_to_one_process_stops_all_and_the_run_goes_on(world, tmp_path, number, code):
    """One process of eight devices, two of four of which one is told to stop, and one again."""
    settings, directory = world
    run = tmp_path / "run"
    shutil.copytree(directory / "run", run)
    (run / "summary.json").unlink()
    shutil.rmtree(run / f"checkpoints/{STEPS}")
    first = STEPS // 2
    with processes.started(arguments(settings, run), tmp_path, 2, 4) as running:
        wait_for_step(run, first + 2)
        running[1].send_signal(number)
        ended = processes.wait(running, tmp_path)
    assert [process.code for process in ended] == [code, code], ended
    stopped = status.status(run)
    assert stopped["state"] == {75: "preempted", 130: "interrupted"}[code]
    assert first < stopped["step"] == stopped["last_checkpoint"] < STEPS
    assert pretrain.pretrain(load(settings), run) == 0
    assert_same_run(run, directory / "run", bitwise_to=first)


def wait_for_step(workdir, step):
    """Until the resumed run has reported it."""
    deadline = time.monotonic() + processes.DEADLINE
    seen_old = False
    while time.monotonic() < deadline:
        last = lines(workdir)[-1]["step"]
        seen_old = seen_old or last < step
        if seen_old and last >= step:
            return
        time.sleep(0.05)
    raise TimeoutError


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "parts"),
    [
        ("--config.seed=7", ["config.seed: 12345 in process 0, 7 in process 1"]),
        ("--config.phases.main.batch=24", ["config.phases.main.batch: 16 in process 0, 24 in p"]),
    ],
)
def test_another_config_in_one_process(world, tmp_path, change, parts):
    settings, _ = world
    command = arguments(settings, tmp_path / "run")
    ended = processes.run(command, tmp_path, 2, 1, {1: [change]})
    assert_one_line(ended, *parts)
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_another_store_in_one_process(world, tmp_path):
    settings, directory = world
    write_corpus(tmp_path / "corpus.txt", documents=60, seed=1)
    shutil.copytree(directory / "store", tmp_path / "store")
    manifest = tmp_path / "store/manifest.json"
    values = json.loads(manifest.read_text())
    values["fingerprint"] = values["fingerprint"][::-1]
    manifest.write_text(json.dumps(values))
    command = arguments(settings, tmp_path / "run", store_hashes=False)
    change = [f"--config.store={tmp_path / 'store'}"]
    ended = processes.run(command, tmp_path, 2, 1, {1: change})
    assert_one_line(ended, "config.store", "fingerprint", "process 0", "process 1")
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_a_process_that_never_comes(world, tmp_path):
    settings, _ = world
    change = ["--config.distributed.timeout=3", "--config.distributed.processes=3"]
    command = [*arguments(settings, tmp_path / "run"), *change]
    ended = processes.run(command, tmp_path, 2, 1)
    assert_one_line(ended, "config.distributed", "2 of 3 processes came", "missing: 2")
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_what_one_process_refuses_ends_all(world, tmp_path):
    """The lock is asked for by the first process alone; the others would wait for it in the first step."""
    settings, _ = world
    with workdir.locked(tmp_path / "run"):
        ended = processes.run(arguments(settings, tmp_path / "run"), tmp_path, 2, 1)
    assert_one_line(ended, "another process is training in it")
    # Of a store that is not there on one host.
    ended = processes.run(
        arguments(settings, tmp_path / "run"),
        tmp_path,
        2,
        1,
        {1: [f"--config.store={tmp_path / 'nowhere'}"]},
    )
    assert_one_line(ended, "nowhere: missing; run bert-jax prepare first")


@pytest.mark.slow
@pytest.mark.parametrize("which", [0, 1])
def test_an_error_in_one_process_ends_all(world, tmp_path, which):
    settings, _ = world
    (tmp_path / "batches").mkdir()
    variables = {RECORD: str(tmp_path / "batches"), FAIL: f"{which}:4"}
    ended = processes.run(arguments(settings, tmp_path / "run"), tmp_path, 2, 1, **variables)
    assert [process.code for process in ended] == [1, 1], ended
    reason = "RuntimeError: the batch of this test"
    assert "Traceback" in ended[which].errors and reason in ended[which].errors
    assert f"bert-jax: process {which}: {reason}" in ended[1 - which].errors
    left = status.status(tmp_path / "run")
    assert left["state"] == "failed" and reason in left["error"]


def test_a_missing_store_is_not_prepared_by_several(world, tmp_path, monkeypatch):
    settings, _ = world
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    absent = load(settings, store=tmp_path / "store")
    with pytest.raises(BadInput, match="missing; run bert-jax prepare first"):
        pretrain.open_data(absent, tmp_path / "run")
