"""Workdirs in buckets: locked by one process, and readable by every command (kills and signals: tests/faults). A local
server implements Google's JSON API (kits/bucket.py)."""

import pytest
from etils import epath
from kits import corpora, external_models
from kits.malformed_inputs import refused
from kits.runs import assert_same_bits, load, make_run, params, pretraining

from bert_jax import cli, config, train
from bert_jax.checkpoints import reader, writer
from bert_jax.commands import import_model
from bert_jax.errors import LOST, BadInput, Unavailable, Unfinished
from bert_jax.runs import lock, workdir
from bert_jax.storage import remote

bucket = pytest.importorskip("kits.bucket", reason="needs gcsfs: pip install 'bert_jax[gcs]'")
gcs = bucket.gcs
RUN = "gs://bucket/runs/one"


@pytest.fixture
def run(gcs, tmp_path):
    """A run on disk, copied to the bucket."""
    make_run(tmp_path / "run")
    gcs.copy(tmp_path / "run", "runs/one")
    return tmp_path / "run"


def checkpoints():
    remote.Directory(RUN)  # configures epath, as opening the workdir does
    return epath.Path(RUN) / "checkpoints"


# --- The lock -------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_second_trainer_is_refused(gcs, finished, monkeypatch, capsys):
    monkeypatch.setattr(lock, "RENEWAL", 0.2)
    with workdir.Workdir(RUN, bucket=remote.Directory(RUN)).locked():
        assert cli.main(pretraining(finished[0], RUN)) == LOST
        errors, holder = capsys.readouterr().err, lock.this_process()
        assert RUN in errors and str(holder["pid"]) in errors and holder["host"] in errors
        assert gcs.names() == ["runs/one/.lock"]
    assert not gcs.names()


def test_a_stale_lock_is_taken_over_and_its_holder_stops_writing(gcs, monkeypatch, tmp_path):
    """The previous holder only slept."""
    monkeypatch.setattr(lock, "RENEWAL", 0.1)
    monkeypatch.setattr(lock, "STALE", 0.5)
    sleeper, taker = (lock.Lock(remote.Directory(RUN)) for _ in range(2))
    sleeper.acquire()
    old = workdir.Workdir(RUN, tmp_path, sleeper.bucket)
    old.lock = sleeper
    taker.acquire()
    (tmp_path / "status.json").touch()
    for write in (old.upload, old.try_upload):
        with pytest.raises(Unavailable, match=RUN):
            write()
    taker.check()
    assert gcs.names() == ["runs/one/.lock"]


def test_of_two_processes_that_acquire_a_lock_the_last_gets_it(gcs, monkeypatch):
    monkeypatch.setattr(lock, "RENEWAL", 0.0)
    monkeypatch.setattr(lock, "STALE", 0.0)
    one, other = (lock.Lock(remote.Directory(RUN)) for _ in range(2))
    one.write = lambda **how: (lock.Lock.write(one, **how), other.acquire())
    with pytest.raises(Unavailable):
        one.acquire()
    other.check()


# --- Content --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["model.safetensors", "checkpoints/1000/weights.pt", ".git/HEAD"])
def test_a_directory_that_is_not_a_run_is_refused_and_unchanged(gcs, finished, name):
    gcs.put(f"runs/one/{name}", b"of others", {})
    before = gcs.names()
    assert RUN in refused(*pretraining(finished[0], RUN))
    assert gcs.names() == before and gcs.text(f"runs/one/{name}") == "of others"


def test_nothing_is_written_outside_the_copy_of_a_run(gcs, run):
    gcs.put("runs/one/tokenizer/../../../outside.txt", b"of others", {})
    with workdir.opened(RUN) as opened:
        assert (opened.directory / "tokenizer").is_dir()
        assert not list(opened.directory.parents[1].rglob("outside.txt"))


@pytest.mark.slow
def test_a_damaged_checkpoint_is_detected_and_renamed(gcs, run):
    [data] = gcs.names("runs/one/checkpoints/7/params/d/")
    gcs.flip(data)
    assert reader.newest_verified(checkpoints(), "", ("opt_state",)) == (7, {})
    with pytest.raises(BadInput, match=f"{RUN}/checkpoints/7"):
        reader.newest_verified(checkpoints(), "")
    [aside] = writer.clean(checkpoints(), [7])
    assert reader.steps(checkpoints()) == []
    assert gcs.names(f"runs/one/checkpoints/{aside.name}/params/d/")


def test_an_unfinished_first_save_is_not_a_checkpoint(gcs, run):
    del gcs.objects["runs/one/checkpoints/7/commit_success.txt"]
    [data] = gcs.names("runs/one/checkpoints/7/params/d/")
    del gcs.objects[data]
    step, skipped = reader.newest_verified(checkpoints(), "")
    assert step is None and list(skipped) == [7]
    assert writer.clean(checkpoints(), skipped) == []
    assert not gcs.names("runs/one/checkpoints/7/")


@pytest.mark.parametrize("name", ["params/manifest.ocdbt", "params/_METADATA"])
def test_an_unreachable_checkpoint_is_not_damaged(gcs, run, name):
    gcs.fault = lambda method, requested: 403 if requested.endswith(name) else 0
    with pytest.raises((Unavailable, Unfinished), match="checkpoints/7"):
        reader.problem(checkpoints() / "7", "")


@pytest.mark.slow
def test_a_run_in_a_bucket_reads_like_one_on_disk(gcs, run):
    with workdir.opened(RUN) as opened:
        assert not (opened.directory / "checkpoints").exists()  # never downloaded
    assert_same_bits(params(RUN), params(run))
    assert config.load(f"{RUN}/config.json") == config.load(str(run / "config.json"))


@pytest.mark.full
def test_a_run_continues_one_in_a_bucket(gcs, finished, tmp_path):
    """It ends with the bits of that run, which it only reads."""
    settings, source = finished
    gcs.copy(source, "runs/one")
    before = dict(gcs.objects)
    continued = load(settings, continue_from=f"{RUN}@10")
    assert train.pretrain(continued, tmp_path / "run") == 0
    assert_same_bits(params(tmp_path / "run"), params(source))
    assert gcs.objects == before and (tmp_path / "run/checkpoints/10").is_dir()


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["status", "--workdir", "gs://nosuch/run"], "gs://nosuch/run"),
        (["export", "--workdir", RUN, "--output", "x"], RUN),
        (["pretrain", "--config", f"{RUN}/config.json", "--workdir", RUN], "config.json"),
    ],
)
def test_a_bad_address_is_reported_in_one_line(gcs, arguments, named):
    assert named in refused(*arguments)


# --- Imports --------------------------------------------------------------------------------------


@pytest.fixture
def source(tmp_path):
    return external_models.write_huggingface(tmp_path / "model")


@pytest.mark.full
@pytest.mark.slow
def test_an_import_into_a_bucket_equals_one_on_disk(gcs, source, tmp_path):
    import_model.import_model(source, tmp_path / "run")
    assert cli.main(["import", "--source", str(source), "--workdir", RUN]) == 0
    names = {name.removeprefix("runs/one/") for name in gcs.names("runs/one/")}
    files = {*corpora.files(tmp_path / "run")}
    assert {name for name in names ^ files if not name.startswith("checkpoints/")} == set()
    last = max(names, key=lambda name: gcs.objects[f"runs/one/{name}"].generation)
    assert last == "run.json"
    assert_same_bits(params(RUN), params(tmp_path / "run"))
