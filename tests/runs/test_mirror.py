"""Workdirs at gs://: kept as they change, held by one process, read by every command like any other. The bucket speaks
Google's JSON API on this machine (bucket.py)."""

import json
import os
import shutil
import threading
import time
from pathlib import Path

import jax
import numpy as np
import pytest
from etils import epath
from kits.runs import make_run, save

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


def wait(condition) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_workdir_on_the_disk_is_itself(tmp_path):
    with mirror.mirrored(tmp_path) as found, found.held():
        assert found.directory == tmp_path and not workdir.address(tmp_path)
        found.flush()
    assert workdir.checkpoints(tmp_path) == tmp_path / "checkpoints"
    assert not list(tmp_path.iterdir())


def test_what_changes_is_kept(there):
    with mirror.mirrored(RUN) as found, found.held():
        place = found.directory
        assert workdir.name(place) == RUN and place.name == "one"
        assert str(workdir.checkpoints(place)) == f"{RUN}/checkpoints"
        (place / "tokenizer").mkdir()
        (place / "tokenizer/vocab.txt").write_text("the")
        (place / "metrics.jsonl").write_text("1\n")
        (place / ".hidden").write_text("")
        found.flush()
        assert kept(there).keys() == {".lock", "metrics.jsonl", "tokenizer/vocab.txt"}
        with open(place / "metrics.jsonl", "a") as file:
            file.write("2\n")
        wait(lambda: kept(there)["metrics.jsonl"] == "1\n2\n")  # nobody asks for it
        found.remove("tokenizer/vocab.txt")
        assert not (place / "tokenizer/vocab.txt").exists()
        (place / "status.json").write_text("{}")
    assert kept(there) == {"metrics.jsonl": "1\n2\n", "status.json": "{}"}
    with mirror.mirrored(RUN) as found:
        assert (found.directory / "metrics.jsonl").read_text() == "1\n2\n"


def test_a_large_file_is_written_less_often_and_always_in_the_end(there, monkeypatch):
    monkeypatch.setattr(mirror, "RATE", 1e-3)  # bytes a second
    with mirror.mirrored(RUN) as found, found.held():
        path = found.directory / "metrics.jsonl"
        path.write_text("1\n")
        wait(lambda: "metrics.jsonl" in kept(there))
        path.write_text("1\n2\n")
        time.sleep(0.3)
        assert kept(there)["metrics.jsonl"] == "1\n"
    assert kept(there)["metrics.jsonl"] == "1\n2\n"


def test_the_last_words_of_a_process_that_ends_at_once(there):
    with mirror.mirrored(RUN) as found:
        with pytest.raises(Unfinished), found.held():
            tell = found.after((found.directory / "status.json").write_text)
            tell("failed")
            time.sleep(0.2)  # in which the lock would be confirmed
            assert kept(there) == {"status.json": "failed"}
            found.flush()


def test_who_has_lost_the_lock_writes_nothing_more(there):
    with mirror.mirrored(RUN) as found:
        with pytest.raises(Unfinished, match=f"^{RUN}: another process trains in it"):
            with found.held():
                time.sleep(1.1)  # or nobody can have taken it
                there.put("runs/one/.lock", b"of another", {})
                (found.directory / "status.json").write_text("{}")
                found.flush()
    assert kept(there) == {".lock": "of another"}


def test_a_lock_taken_while_files_are_written_is_noticed(there):
    """Before a checkpoint is written, that is."""
    with mirror.mirrored(RUN) as found:
        with pytest.raises(Unfinished, match=f"^{RUN}: another process trains in it"):
            with found.held():

                def take(method, name):
                    if method == "POST" and not name:  # all but locks have their names within
                        time.sleep(1.1)
                        there.put("runs/one/.lock", b"of another", {})
                    return 0

                there.fault = take
                (found.directory / "status.json").write_text("{}")
                with pytest.raises(Unfinished):
                    found.flush()


def test_what_cannot_be_kept_stops_the_run(there):
    """But not before a checkpoint is to be saved: until then it's tried again."""
    with mirror.mirrored(RUN) as found:
        with pytest.raises(BadInput, match=f"^{RUN}: OSError: Forbidden"), found.held():
            there.fault = lambda method, name: 403 if method != "GET" else 0
            (found.directory / "status.json").write_text("{}")
            time.sleep(0.2)
            found.flush()


def test_a_request_that_no_one_answers(there, run, monkeypatch):
    """Ends, and is the bucket's fault: the next start may read the checkpoint."""
    monkeypatch.setattr(remote, "TIMEOUT", 0.3)
    place, over = checkpoints(), threading.Event()
    there.fault = lambda method, name: 0 if name.endswith("lock") else over.wait(20) and 0
    with pytest.raises(Missing, match=f"^{RUN}: no answer$"), remote.reached(RUN):
        remote.Place(RUN).read("run.json")
    with pytest.raises(Missing, match="7: cannot be read now"):
        reader.problem(place / "7", "")
    over.set()


def test_somebody_who_asks_for_the_status_does_not_wait_for_long(there, monkeypatch, capsys):
    monkeypatch.setattr(remote, "PATIENCE", 0.3)
    over, start = threading.Event(), time.monotonic()
    there.fault = lambda method, name: over.wait(60) and 0
    assert cli.main(["status", "--workdir", RUN]) == LOST
    over.set()
    assert capsys.readouterr().err == f"bert-jax: {RUN}: no answer\n"
    assert time.monotonic() - start < 30


def test_who_trains_waits_for_no_bucket_between_two_saves(there, run):
    over, place = threading.Event(), checkpoints()
    with mirror.mirrored(RUN) as found, writer.manager(place) as manager:
        with report.Reporter(found.directory, 7, 20) as reporter:
            reporter.start(7, 1.0)
            there.fault, start = lambda method, name: over.wait(60) and 0, time.monotonic()
            reporter.report(8, "heldout", {"loss": 1.0})
            writer.check(manager)
            told = workdir.read_json(found.directory / "status.json")
            over.set()
    assert told["last_checkpoint"] == 7 and time.monotonic() - start < 30


@pytest.mark.parametrize("gone", ["copy", "file", "address"])
def test_a_copy_that_goes_takes_nothing_with_it(there, gone):
    """As a cleaner of caches takes it, in whole or in part: the run stops, and what is in the bucket stays."""
    with mirror.mirrored(RUN) as found:
        with pytest.raises(Unfinished, match=f"^{RUN}: its copy .* was deleted"), found.held():
            (found.directory / "run.json").write_text("{}")
            found.flush()
            if gone == "copy":
                shutil.rmtree(found.directory.parent)
            else:
                place = found.directory.parent / "address"
                (place if gone == "address" else found.directory / "run.json").unlink()
            time.sleep(0.2)  # in which its thread looks
            found.flush()
    assert kept(there) == {"run.json": "{}"}


def test_copies_of_other_commands(there, tmp_path):
    """One that is in use stays, however old it is; one whose process is gone does not, however young."""
    home = tmp_path / "cache/bert_jax/runs"
    left = home / "0123/one"
    left.mkdir(parents=True)
    (left.parent / "address").write_text(RUN)
    with mirror.mirrored(RUN) as one:
        assert not left.parent.exists()
        for path in (one.directory.parent / "address", one.directory, one.directory.parent):
            os.utime(path, (0, 0))
        with mirror.mirrored(f"{RUN}/other"):
            assert one.directory.is_dir() and (one.directory.parent / "address").is_file()


def test_who_does_not_hold_it_brings_traces_alone(there):
    """And traces come at the end alone."""
    with mirror.mirrored(RUN) as found:
        with found.flushed():
            (found.directory / "run.json").write_text("{}")
            (found.directory / "traces/1").mkdir(parents=True)
            (found.directory / "traces/1/a").write_text("1")
            found.flush()
            assert not kept(there)
        assert kept(there) == {"traces/1/a": "1"}


def test_what_is_read_before_the_lock_is_read_again(there):
    """Of a run that goes on elsewhere until then: its last lines stay. Where it is another run by then: refused."""
    with mirror.mirrored(RUN) as one, mirror.mirrored(RUN) as other:
        with one.held():
            (one.directory / "metrics.jsonl").write_text("1\n")
            (one.directory / "tensorboard").mkdir()
            (one.directory / "tensorboard/a").write_text("1")
        with mirror.mirrored(RUN) as late:
            with one.held():
                (one.directory / "metrics.jsonl").write_text("1\n2\n")
                one.remove("tensorboard/a")
            with late.held():
                assert (late.directory / "metrics.jsonl").read_text() == "1\n2\n"
                (late.directory / "status.json").write_text("{}")
            assert kept(there) == {"metrics.jsonl": "1\n2\n", "status.json": "{}"}
        with one.held():
            (one.directory / "run.json").write_text("{}")
        with pytest.raises(Missing, match=f"^{RUN}: another process has trained in it just now"):
            with other.held():
                pass
    assert "run.json" in kept(there) and ".lock" not in kept(there)


def test_what_is_large_or_of_others_is_not_copied(there):
    for name in ("logs/worker0.log", "store/train/tokens.npy"):
        there.put(f"runs/one/{name}", b"", {})
    with mirror.mirrored(RUN) as found:
        assert not list(found.directory.iterdir())


# --- Checkpoints --------------------------------------------------------------------------------


def checkpoints():
    remote.Place(RUN)  # as a copy of the rest is made before
    return epath.Path(RUN) / "checkpoints"


def test_checkpoints_that_were_copied_there_are_checkpoints(there, run):
    """Also without the mark that Orbax writes there and only of late on disks: the time in their metadata counts."""
    place = checkpoints()
    assert reader.newest_sound(place, "") == reader.Found(7, {})
    del there.objects[f"runs/one/checkpoints/7/{reader.COMMITTED}"]
    for text in (None, b"{}", b"\xff"):
        if text:  # damage is no reason to delete
            there.put(f"runs/one/checkpoints/7/{reader.WHOLE}", text, {})
        writer.remove_unfinished(place)
        assert reader.newest_sound(place, "") == reader.Found(7, {})


def test_what_others_write_is_seen(there, run):
    """Another host, or TensorStore: nothing remembers what was there before."""
    assert [path.name for path in checkpoints().iterdir()] == ["7"]
    for name in there.names("runs/one/checkpoints/7/"):
        there.put(name.replace("/7/", "/9/"), there.objects[name].data, {})
    assert sorted(path.name for path in checkpoints().iterdir()) == ["7", "9"]
    assert reader.steps(checkpoints()) == [9, 7]


def test_a_save_that_was_cut_off_is_no_checkpoint(there, run):
    place = checkpoints()
    name = f"runs/one/checkpoints/7/{reader.WHOLE}"
    known = json.loads(there.text(name)) | {"commit_timestamp_nsecs": None}
    there.put(name, json.dumps(known).encode(), {})
    del there.objects[f"runs/one/checkpoints/7/{reader.COMMITTED}"]
    assert reader.steps(place) == [] and reader.newest(place) is None
    writer.remove_unfinished(place)
    assert not there.names("runs/one/checkpoints/7")


def test_a_damaged_checkpoint_is_passed_over_and_set_aside(there, run):
    place = checkpoints()
    [data] = there.names("runs/one/checkpoints/7/params/d/")
    there.flip(data)
    assert reader.newest_sound(place, "", ("opt_state",)) == reader.Found(7, {})
    with pytest.raises(BadInput, match=f"no checkpoint can be used: {RUN}/checkpoints/7: "):
        reader.newest_sound(place, "")
    [aside] = writer.set_aside(place, [7])
    assert reader.steps(place) == [] and "7.broken-" in str(aside)
    assert there.names(f"runs/one/checkpoints/{aside.name}/params/d/")


def test_a_checkpoint_out_of_reach_is_not_damaged(there, run):
    place = checkpoints()
    for part in ("fingerprints/metadata", "params/manifest.ocdbt"):
        there.fault = lambda method, name, part=part: 403 if name.endswith(part) else 0
        with pytest.raises(Unfinished, match="cannot be read now"):
            reader.problem(place / "7", "")


# --- Commands -----------------------------------------------------------------------------------


def test_a_run_is_read_like_any_other(there, run, tmp_path, capsys):
    """What the parameters are, what is exported of them, bit for bit; and what is told names the address."""
    with mirror.copied(RUN) as copy:
        assert not any("/checkpoints/" in name for _, name in there.asked)  # read where they lie
        models = load_model.open_run(copy), load_model.open_run(run)
        for a, b in zip(*(leaves(model.params) for model in models), strict=True):
            np.testing.assert_array_equal(a, b)
    assert cli.main(["compare", "--a", str(run), "--b", RUN, "--json", str(tmp_path / "j")]) == 0
    values = json.loads((tmp_path / "j").read_text())
    assert values["b"] == RUN and values["bitwise"] == len(values["tensors"]) > 0
    for name in (str(run), RUN):
        output = tmp_path / f"out{len(name)}"
        assert cli.main(["export", "--workdir", name, "--output", str(output)]) == 0
    one, two = (path.read_bytes() for path in sorted(tmp_path.glob("out*/model.safetensors")))
    assert one == two
    capsys.readouterr()
    there.put("runs/one/run.json", b"{", {})
    assert cli.main(["export", "--workdir", RUN, "--output", str(tmp_path / "no")]) == 2
    assert capsys.readouterr().err.startswith(f"bert-jax: {RUN}/run.json: unreadable")


def leaves(tree):
    return [np.asarray(leaf) for leaf in jax.tree.leaves(tree)]


def test_the_status_is_asked_for_alone(there, run, capsys):
    workdir.write_status(run, "running", step=7, steps=9, last_checkpoint=7, heartbeat=10,
                         progress=workdir.stamp(), seconds_left=1)  # fmt: skip
    there.put("runs/one/status.json", (run / "status.json").read_bytes(), {})
    there.asked.clear()
    assert cli.main(["status", "--workdir", RUN]) == 0
    assert capsys.readouterr().out.startswith("running, step 7 of 9")
    assert {name for method, name in there.asked if method == "READ"} == {"runs/one/status.json"}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["status", "--workdir", "gs://nosuch/run"], "gs://nosuch/run: not a run (no status.json)"),
        (["verify", "--workdir", "gs://bucket/none"], "--workdir gs://bucket/none: not a run"),
        (["export", "--workdir", RUN, "--output", "x"], f"{RUN}: not a run (no config.json)"),
        (
            ["pretrain", "--config", f"{RUN}/config.json", "--workdir", RUN],
            "config.json: not there",
        ),
    ],
)
def test_a_bad_address_is_told_in_a_line(there, capsys, arguments, said):
    assert cli.main(arguments) == 2
    errors = capsys.readouterr().err
    assert said in errors and errors.count("\n") == 1


def test_a_config_is_read_at_an_address(there, run):
    assert config.load(f"{RUN}/config.json") == config.load(str(run / "config.json"))
    assert Path(RUN).parts[0] == "gs:"  # what no path may be made of
    assert not Path("gs:").exists()


def test_orbax_deletes_what_is_older(there, run):
    save(epath.Path(RUN), 8, load_model.open_run(run).params)
    assert reader.steps(checkpoints()) == [8] and reader.problem(checkpoints() / "8", "") == ""
    assert not there.names("runs/one/checkpoints/7")
