"""Workdirs at gs://: kept as they change, held by one process, whole after a kill, read by every command like any
other. The bucket speaks Google's JSON API on this machine (bucket.py)."""

import signal
import threading
import time

import pytest
from etils import epath
from kits import processes
from kits.runs import assert_same_bits, make_run, params, save
from kits.small import overrides
from kits.waiting import wait_until

from bert_jax import cli, config
from bert_jax.checkpoints import reader, writer
from bert_jax.commands import load_model
from bert_jax.errors import LOST, BadInput, Missing, Unfinished
from bert_jax.runs import mirror, report, workdir
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


def kept(there) -> dict[str, str]:
    names = there.names("runs/one/")
    return {name.removeprefix("runs/one/"): there.text(name) for name in names}


def checkpoints():
    remote.Place(RUN)  # as a copy of the rest is made before
    return epath.Path(RUN) / "checkpoints"


# --- Training -----------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_run_killed_in_a_save_goes_on_to_the_same_bits(there, finished, tmp_path):
    settings, undisturbed = finished
    command = ["pretrain", "--config", "demo", "--workdir", RUN]
    command += [f"--config.{override}" for override in overrides(settings)]
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


def test_changes_are_kept_in_the_bucket(there):
    with mirror.mirrored(RUN) as found, found.held():
        place = found.directory
        assert str(workdir.checkpoints(place)) == f"{RUN}/checkpoints"
        (place / "tokenizer").mkdir()
        (place / "tokenizer/vocab.txt").write_text("the")
        (place / "metrics.jsonl").write_text("1\n")
        found.flush()
        assert kept(there).keys() == {".lock", "metrics.jsonl", "tokenizer/vocab.txt"}
        with open(place / "metrics.jsonl", "a") as file:
            file.write("2\n")
        wait_until(lambda: kept(there)["metrics.jsonl"] == "1\n2\n")  # nobody asks for it
        found.remove("tokenizer/vocab.txt")
        (place / "status.json").write_text("{}")
    assert kept(there) == {"metrics.jsonl": "1\n2\n", "status.json": "{}"}


def test_a_process_that_has_lost_the_lock_writes_nothing_more(there):
    with mirror.mirrored(RUN) as found:
        with pytest.raises(Unfinished, match=RUN), found.held():
            time.sleep(1.1)  # or nobody can have taken it
            there.put("runs/one/.lock", b"of another", {})
            (found.directory / "status.json").write_text("{}")
            found.flush()
    assert kept(there) == {".lock": "of another"}


def test_a_bucket_that_refuses_to_write_stops_the_run(there):
    with mirror.mirrored(RUN) as found:
        with pytest.raises(BadInput, match=RUN), found.held():
            there.fault = lambda method, name: 403 if method != "GET" else 0
            (found.directory / "status.json").write_text("{}")
            time.sleep(0.2)  # in which it is tried in vain
            found.flush()


def test_training_waits_for_no_bucket_between_two_saves(there, run):
    over, in_time = threading.Event(), []
    with mirror.mirrored(RUN) as found, writer.manager(checkpoints()) as manager:
        with report.Reporter(found.directory, 7, 20) as reporter:
            reporter.start(7, 1.0)
            there.fault = lambda method, name: in_time.append(over.wait(20)) or 0
            reporter.report(8, "heldout", {"loss": 1.0})
            writer.check(manager)
            told = workdir.read_json(found.directory / "status.json")
            over.set()
    assert told["last_checkpoint"] == 7 and all(in_time)


# --- Checkpoints --------------------------------------------------------------------------------


def test_checkpoints_written_by_others_are_seen(there, run):
    """Nothing remembers what was there before; the mark that Orbax writes in buckets alone is not needed."""
    assert reader.newest_sound(checkpoints(), "") == (7, {})
    save(epath.Path(RUN), 8, load_model.open_run(run).params)
    assert reader.steps(checkpoints()) == [8] and not there.names("runs/one/checkpoints/7/")
    del there.objects[f"runs/one/checkpoints/8/{reader.COMMITTED}"]
    assert reader.newest_sound(checkpoints(), "") == (8, {})


def test_a_damaged_checkpoint_is_found_and_set_aside(there, run):
    [data] = there.names("runs/one/checkpoints/7/params/d/")
    there.flip(data)
    assert reader.newest_sound(checkpoints(), "", ("opt_state",)) == (7, {})
    with pytest.raises(BadInput, match=f"{RUN}/checkpoints/7"):
        reader.newest_sound(checkpoints(), "")
    [aside] = writer.set_aside(checkpoints(), [7])
    assert reader.steps(checkpoints()) == []
    assert there.names(f"runs/one/checkpoints/{aside.name}/params/d/")


@pytest.mark.parametrize("part", ["fingerprints/metadata", "params/manifest.ocdbt"])
def test_a_checkpoint_out_of_reach_is_not_damaged(there, run, part):
    there.fault = lambda method, name: 403 if name.endswith(part) else 0
    with pytest.raises(Unfinished, match="checkpoints/7"):
        reader.problem(checkpoints() / "7", "")


def test_a_bucket_that_does_not_answer_is_missing(there, run, monkeypatch):
    """The checkpoint is not damaged: the next start may read it."""
    monkeypatch.setattr(remote, "TIMEOUT", 0.3)
    monkeypatch.setattr(remote, "PATIENCE", 0.3)
    place, over = checkpoints(), threading.Event()
    there.fault = lambda method, name: over.wait(20) and 0
    with pytest.raises(Missing, match="checkpoints/7|/7: "):
        reader.problem(place / "7", "")
    assert cli.main(["status", "--workdir", RUN]) == LOST
    over.set()


# --- Commands -----------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_run_is_read_like_any_other(there, run):
    with mirror.copied(RUN) as copy:
        assert not any("/checkpoints/" in name for _, name in there.asked)  # read where they lie
        assert_same_bits(params(copy), params(run))
    assert config.load(f"{RUN}/config.json") == config.load(str(run / "config.json"))
    there.put("runs/one/run.json", b"{", {})
    with pytest.raises(BadInput, match=f"{RUN}/run.json"), mirror.copied(RUN) as copy:
        params(copy)


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
