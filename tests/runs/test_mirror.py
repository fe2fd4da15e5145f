"""Workdirs at gs://: held by one process, whole after a kill, read by every command like any other. The bucket speaks
Google's JSON API on this machine (bucket.py)."""

import signal

import pytest
from etils import epath
from kits import processes
from kits.runs import assert_same_bits, make_run, params, pretraining

from bert_jax import cli, config
from bert_jax.checkpoints import reader, writer
from bert_jax.errors import LOST, BadInput, Unfinished
from bert_jax.runs import lease, mirror, workdir
from bert_jax.storage import remote

bucket = pytest.importorskip("kits.bucket", reason="needs gcsfs: pip install 'bert_jax[gcs]'")
there = bucket.there
RUN = "gs://bucket/runs/one"


@pytest.fixture
def run(there, tmp_path):
    """A run whose files were copied to the bucket from a disk."""
    make_run(tmp_path / "run")
    there.copy(tmp_path / "run", "runs/one")
    return tmp_path / "run"


def checkpoints():
    remote.Place(RUN)  # as a copy of the rest is made before
    return epath.Path(RUN) / "checkpoints"


@pytest.mark.full
@pytest.mark.slow
def test_a_run_killed_in_a_save_goes_on_to_the_same_bits(there, finished, tmp_path):
    settings, undisturbed = finished
    command = pretraining(settings, RUN)
    with processes.started(command, tmp_path / "said", 1, 8) as running:

        def kill(method, name):
            if name.startswith("runs/one/checkpoints/20/params") and method == "POST":
                running[0].kill()
                running[0].wait()
            return 0

        there.fault = kill
        [ended] = processes.wait(running, tmp_path / "said")
    assert ended.code == -signal.SIGKILL, ended.errors
    there.fault = lambda method, name: 0
    assert reader.steps(checkpoints()) == [10]
    assert cli.main(command) == 0
    with mirror.copied(RUN) as copy:
        assert_same_bits(params(copy), params(undisturbed))
        assert workdir.read_json(copy / "status.json")["state"] == "done"
    assert "runs/one/.lock" not in there.names()


@pytest.mark.slow
def test_a_second_trainer_is_refused(there, finished, monkeypatch, capsys):
    monkeypatch.setattr(lease, "PERIOD", 0.1)
    monkeypatch.setattr(lease, "SILENCE", 1.0)
    with lease.Lease(remote.Place(RUN)).held():
        assert cli.main(pretraining(finished[0], RUN)) == LOST
        assert RUN in capsys.readouterr().err
        assert there.names() == ["runs/one/.lock"]


def test_a_silent_lock_is_taken_and_its_holder_stops(there, monkeypatch):
    """The holder of before, that has only slept, writes nothing more."""
    monkeypatch.setattr(lease, "SILENCE", 0.5)
    sleeper, taker = (lease.Lease(remote.Place(RUN)) for _ in range(2))
    sleeper.take()
    monkeypatch.setattr(lease.status, "is_gone", lambda found: False)  # as on another machine
    taker.take()
    with pytest.raises(Unfinished, match=RUN):
        sleeper.confirm(0.0)
    sleeper.release()
    taker.confirm(0.0)


@pytest.mark.parametrize("name", ["model.safetensors", "checkpoints/1000/weights.pt", ".git/HEAD"])
def test_what_is_no_run_is_neither_trained_into_nor_changed(there, finished, capsys, name):
    there.put(f"runs/one/{name}", b"of others", {})
    before = there.names()
    assert cli.main(pretraining(finished[0], RUN)) == 2
    assert RUN in capsys.readouterr().err
    assert there.names() == before and there.text(f"runs/one/{name}") == "of others"


def test_a_damaged_checkpoint_is_found_and_set_aside(there, run):
    [data] = there.names("runs/one/checkpoints/7/params/d/")
    there.flip(data)
    assert reader.newest_sound(checkpoints(), "", ("opt_state",)) == (7, {})
    with pytest.raises(BadInput, match=f"{RUN}/checkpoints/7"):
        reader.newest_sound(checkpoints(), "")
    [aside] = writer.set_aside(checkpoints(), [7])
    assert reader.steps(checkpoints()) == []
    assert there.names(f"runs/one/checkpoints/{aside.name}/params/d/")


def test_a_checkpoint_out_of_reach_is_not_damaged(there, run):
    there.fault = lambda method, name: 403 if name.endswith("params/manifest.ocdbt") else 0
    with pytest.raises(Unfinished, match="checkpoints/7"):
        reader.problem(checkpoints() / "7", "")


@pytest.mark.full
@pytest.mark.slow
def test_a_run_is_read_like_any_other(there, run):
    with mirror.copied(RUN) as copy:
        assert not any("/checkpoints/" in name for _, name in there.asked)  # read where they lie
        assert_same_bits(params(copy), params(run))
    assert config.load(f"{RUN}/config.json") == config.load(str(run / "config.json"))


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["status", "--workdir", "gs://nosuch/run"], "gs://nosuch/run"),
        (["export", "--workdir", RUN, "--output", "x"], RUN),
        (["pretrain", "--config", f"{RUN}/config.json", "--workdir", RUN], "config.json"),
    ],
)
def test_a_bad_address_is_told_in_a_line(there, capsys, arguments, named):
    assert cli.main(arguments) == 2
    errors = capsys.readouterr().err
    assert named in errors and errors.count("\n") == 1
