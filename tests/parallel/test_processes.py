"""Several real processes, or other meshes, are the same run: batches, losses, checkpoints, stops and refusals."""

import functools
import json
import shutil
import signal
import time

import jax
import numpy as np
import pytest
from kits import processes, stuck
from kits.processes import FAIL, RECORD, digests
from kits.running import assert_same_bits, lines, params
from kits.small import SMALL, overrides, write_corpus

from bert_jax import config, train
from bert_jax.checkpoints import writer
from bert_jax.commands import inspect_batch
from bert_jax.data import store as stores
from bert_jax.errors import LOST, BadInput
from bert_jax.parallel import mesh as meshes
from bert_jax.runs import jax_setup, status, workdir

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
    with pytest.MonkeyPatch.context() as patch:
        record_batches(patch, directory / "batches")
        assert train.pretrain(load(settings), directory / "run") == 0
    return settings, directory


def record_batches(patch, directory):
    directory.mkdir()
    patch.setattr(meshes, "to_devices", processes.record(directory, 0))


def load(settings, **changes):
    return config.load("demo", overrides(settings | changes))


def arguments(settings, workdir, **changes):
    keys = [f"--config.{override}" for override in overrides(settings | changes)]
    return ["pretrain", "--config", "demo", *keys, "--workdir", str(workdir)]


def assert_same_run(workdir, undisturbed, bitwise_to: int = 0):
    """The same lines, losses and parameters, to float precision; of steps up to `bitwise_to` to the bit."""
    ours, theirs = lines(workdir), lines(undisturbed)
    assert [(x["step"], x["split"]) for x in ours] == [(x["step"], x["split"]) for x in theirs]
    for a, b in zip(ours, theirs, strict=True):
        tolerance = 0 if a["step"] <= bitwise_to else CLOSE
        for key in a.keys() & {"loss", "mlm_loss", "nsp_loss", "gradient_norm"}:
            assert a[key] == pytest.approx(b[key], rel=tolerance, abs=0), (a["step"], key)
    assert_close(params(workdir), params(undisturbed))


def assert_close(a, b):
    # Adam without bias correction divides tiny gradients by their own size: their sign is all that is left.
    jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-3, atol=1e-4), a, b)


def assert_one_line(ended, *parts, code=2):
    """Every process has ended with this code, and with one and the same kind of line."""
    for process in ended:
        assert process.code == code, process
        assert len(process.errors.splitlines()) == 1, process.errors
        assert process.errors.startswith("bert-jax: ")
        for part in parts:
            assert part in process.errors


def use_devices(patch, number: int):
    make_mesh = meshes.make_mesh
    patch.setattr(meshes, "make_mesh", lambda keys, _=None: make_mesh(keys, jax.devices()[:number]))


@pytest.mark.slow
def test_one_device(world, tmp_path, monkeypatch):
    settings, directory = world
    use_devices(monkeypatch, 1)
    assert train.pretrain(load(settings), tmp_path / "run") == 0
    assert_same_run(tmp_path / "run", directory / "run")


def half_done(world, tmp_path):
    """A copy of the undisturbed run as it was after half of its steps."""
    run = tmp_path / "run"
    shutil.copytree(world[1] / "run", run)
    (run / "summary.json").unlink()
    shutil.rmtree(run / f"checkpoints/{STEPS}")
    return run


@pytest.mark.slow
def test_another_mesh_at_every_start(world, tmp_path, monkeypatch):
    """Eight devices, then four that split parameters, then one: what is restored is what was saved, to the bit."""
    settings, directory = world
    run, saved, restored = half_done(world, tmp_path), {}, {}
    save, restore = writer.save, writer.restore

    def watched_save(checkpoints, step, state, *rest):
        saved[step] = jax.device_get(state)
        save(checkpoints, step, state, *rest)

    def watched_restore(place, *rest):
        state = restore(place, *rest)
        restored[int(place.name)] = jax.device_get(state)
        return state

    def asked(stop):
        stop.times += 1
        stop.code = 75 if stop.times == 6 else 0  # after the start at step 10, and five steps
        return bool(stop.code)

    monkeypatch.setattr(writer, "save", watched_save)
    monkeypatch.setattr(writer, "restore", watched_restore)
    with monkeypatch.context() as patch:
        record_batches(patch, tmp_path / "four")
        use_devices(patch, 4)
        patch.setattr(jax_setup.Stop, "asked", asked)
        settings_of_four = load(settings, **{"mesh.fsdp": 2, "mesh.tensor": 2})
        assert train.pretrain(settings_of_four, run) == 75
    # Read on one device, without the loop.
    place = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    places = jax.tree.map(lambda _: place, restored[10])
    assert_same_bits(restored[10], restore(directory / "run/checkpoints/10", restored[10], places))
    with monkeypatch.context() as patch:
        record_batches(patch, tmp_path / "one")
        use_devices(patch, 1)
        assert train.pretrain(load(settings), run) == 0
    assert_same_bits(restored[15], saved[15])
    assert_same_run(run, directory / "run", bitwise_to=10)
    half = [digest for digest, _ in digests(directory / "batches")]
    rest = [digest for part in ("four", "one") for digest, _ in digests(tmp_path / part)]
    assert set(rest) <= set(half) and len(set(rest)) >= STEPS // 2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "devices", "mesh", "read"),
    [
        (2, 4, {}, 8),
        # The two devices of a process have the same rows, and other parts of each matrix.
        (4, 2, {"mesh.fsdp": 2, "mesh.tensor": 2}, 4),
    ],
)
def test_several_processes_are_the_same_run(world, tmp_path, number, devices, mesh, read):
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
    train = [rows for _, rows in ours if sum(rows) >= settings["phases.main.batch"]]
    assert len(train) >= STEPS and all(rows == [read] * number for rows in train)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "code", "from_saved"), [(signal.SIGTERM, 75, False), (signal.SIGINT, 130, True)]
)
def test_a_signal_to_one_process_stops_all_and_the_run_goes_on(
    world, tmp_path, number, code, from_saved
):
    """One process of eight devices, two of four of which one is told to stop, and one again. Two read the store, or
    saved batches."""
    settings, directory = world
    run = half_done(world, tmp_path)
    first, changes = STEPS // 2, {}
    if from_saved:
        changes = {"batches": tmp_path / "saved"}
        inspect_batch.save(load(settings), first, STEPS, tmp_path / "saved", lambda line: None)
    with processes.started(arguments(settings, run, **changes), tmp_path, 2, 4) as running:
        wait_for_step(run, first + 2)
        running[1].send_signal(number)
        ended = processes.wait(running, tmp_path)
    assert [process.code for process in ended] == [code, code], ended
    stopped = status.status(run)
    assert stopped["state"] == {75: "preempted", 130: "interrupted"}[code]
    assert first < stopped["step"] == stopped["last_checkpoint"] < STEPS
    assert train.pretrain(load(settings), run) == 0
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
def test_programs_are_compiled_once_for_all_starts(world, tmp_path):
    """The second start of two processes finds in the cache what the first one has written, also in process 1."""
    settings, _ = world
    variables = {"JAX_COMPILATION_CACHE_DIR": str(tmp_path / "cache"), "JAX_LOG_COMPILES": "1"}
    variables["JAX_DEBUG_LOG_MODULES"] = "jax._src.compiler"
    hits = []
    for start in range(2):
        run = tmp_path / f"run{start}"
        command = arguments(settings, run, **{"phases.main.steps": 2, "schedule.warmup": 1})
        ended = processes.run(command, run.with_suffix(".said"), 2, 1, **variables)
        assert [process.code for process in ended] == [0, 0], ended
        words = "Persistent compilation cache hit for 'jit_train'"
        hits.append([words in process.errors for process in ended])
    assert hits == [[False, False], [True, True]]


@pytest.mark.slow
def test_the_slowest_host_is_named(world, tmp_path):
    """Of two, one of which is held up before every step from the eighth on; each writes its own trace."""
    settings, _ = world
    changes = {"log.every": 5, "profile.steps": (18, 19)}
    command = arguments(settings, tmp_path / "run", **changes)
    fault = {stuck.FAULT: "1:step:8:slow"}
    with processes.started(command, tmp_path, 2, 1, program=stuck.__file__, **fault) as running:
        ended = processes.wait(running, tmp_path)
    assert [process.code for process in ended] == [0, 0], ended
    train = {line["step"]: line for line in lines(tmp_path / "run") if line["split"] == "train"}
    assert train[15]["slowest_host"] == train[20]["slowest_host"] == 1
    by = train[15]["slowest_host_seconds"] + train[20]["slowest_host_seconds"]
    assert 0.7 * 10 * stuck.SLOW < by < 1.5 * 10 * stuck.SLOW
    assert train[5]["slowest_host_seconds"] < 3 * stuck.SLOW
    assert "slowest host 1 by " in ended[0].output
    assert all(len([*tmp_path.glob(f"run/traces/{n}/**/*.xplane.pb")]) == 1 for n in (0, 1))


@pytest.mark.slow
def test_another_config_in_one_process(world, tmp_path):
    settings, _ = world
    command = arguments(settings, tmp_path / "run")
    ended = processes.run(command, tmp_path, 2, 1, {1: ["--config.seed=7"]})
    assert_one_line(ended, "config.seed: 12345 in process 0, 7 in process 1")
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_other_devices_in_one_process(world, tmp_path):
    """As with a wrong CUDA_VISIBLE_DEVICES on one host."""
    settings, _ = world
    ended = processes.run(arguments(settings, tmp_path / "run"), tmp_path, 2, [3, 1])
    assert_one_line(ended, "devices: 3 in process 0, 1 in process 1")
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_a_benchmark_of_all(world, tmp_path):
    settings, _ = world
    keys = [f"--config.{override}" for override in overrides(settings)]
    command = ["benchmark", "--config", "demo", *keys, "--steps", "2"]
    ended = processes.run([*command, "--json", str(tmp_path / "times")], tmp_path, 2, 1)
    assert [process.code for process in ended] == [0, 0] and not ended[1].output, ended
    assert json.loads((tmp_path / "times").read_text())["devices"] == ["cpu", "cpu"]
    ended = processes.run(command, tmp_path, 2, 1, {1: ["--steps", "3"]})
    assert_one_line(ended, "--steps: 2 in process 0, 3 in process 1")


@pytest.mark.slow
def test_another_store_in_one_process(world, tmp_path):
    settings, directory = world
    copy = tmp_path / "store"
    shutil.copytree(directory / "store", copy)
    manifest = json.loads((copy / "manifest.json").read_text())
    (copy / "manifest.json").unlink()
    stores.write_manifest(copy, manifest | {"fingerprint": "another"})
    command = arguments(settings, tmp_path / "run")
    ended = processes.run(command, tmp_path, 2, 1, {1: [f"--config.store={copy}"]})
    assert_one_line(ended, "config.store: fingerprint: ", "'another' in process 1")
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_a_process_that_never_comes(world, tmp_path):
    settings, _ = world
    change = ["--config.distributed.timeout=3", "--config.distributed.processes=3"]
    command = [*arguments(settings, tmp_path / "run"), *change]
    ended = processes.run(command, tmp_path, 2, 1)
    assert_one_line(ended, "config.distributed", "2 of 3 processes came", "missing: 2", code=LOST)
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
        train.open_data(absent, tmp_path / "run", None)
