"""Checkpoints on the disk: what is damaged is found and named, and what is older is used."""

import contextlib
import errno
import json
import os
import resource
import shutil
import time

import jax
import numpy as np
import pytest
from kits.runs import make_run, save

from bert_jax.checkpoints import reader, writer
from bert_jax.checkpoints.fingerprint import Leaf
from bert_jax.commands import load_model
from bert_jax.errors import BadInput, Unfinished
from bert_jax.parallel import processes as cluster
from bert_jax.step import State


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """A run with the steps 7 and 9, and the parameters of both."""
    run = tmp_path_factory.mktemp("kept") / "run"
    *_, seven = make_run(run, step=7)
    nine = jax.tree.map(lambda x: np.asarray(x) + 1, seven)
    with writer.manager(run / "checkpoints", keep=2) as checkpoints:
        state = State(9, nine, {"count": np.int32(9)})
        writer.save(checkpoints, 9, state, reader.fingerprints(reader.items(state)), "")
        writer.finish(checkpoints)
    return run, seven, nine


@pytest.fixture
def run(kept, tmp_path):
    shutil.copytree(kept[0], tmp_path / "run")
    return tmp_path / "run"


def largest(place, item: str):
    """Of the files that hold arrays."""
    return max((place / item).rglob("d/*"), key=lambda path: path.stat().st_size)


def flip(path, place: int) -> None:
    data = bytearray(path.read_bytes())
    data[place] ^= 16
    path.write_bytes(data)


@contextlib.contextmanager
def small_files():
    """Within it no file grows over 20 kB, as on a disk that is full."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def assert_same(a, b) -> None:
    jax.tree.map(np.testing.assert_array_equal, a, b)


def found(run) -> reader.Found:
    return reader.newest_sound(run / "checkpoints", "")


def test_what_nobody_has_touched(run, kept):
    assert reader.problems(run / "checkpoints", "") == {7: "", 9: ""}
    assert found(run) == (9, {})
    assert_same(load_model.open_run(run).params, kept[2])


@pytest.mark.parametrize("where", [0.1, 0.4, 0.7])
@pytest.mark.parametrize("item", reader.ITEMS)
def test_a_flipped_bit_in_an_array(run, kept, item, where, capsys):
    path = largest(run / "checkpoints/9", item)
    flip(path, int(where * path.stat().st_size))
    step, skipped = found(run)
    reason = skipped.get(9, "")
    assert step == (7 if reason else 9)
    # The parameters do not depend on what the optimizer has kept.
    params = load_model.open_run(run).params
    used = 7 if reason and item == "params" else 9
    assert_same(params, kept[1] if used == 7 else kept[2])
    assert ("skipped" in capsys.readouterr().err) == (used == 7)


def test_a_flip_in_the_largest_file_is_found(run):
    """Of its bits nearly all are numbers; Orbax restores them without a word."""
    path = largest(run / "checkpoints/9", "params")
    flip(path, path.stat().st_size // 2)
    assert "params/" in found(run).skipped[9] or "cannot be read" in found(run).skipped[9]


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda place: (place / reader.WHOLE).unlink(), "not whole"),
        (lambda place: shutil.rmtree(place / reader.FINGERPRINTS), "its fingerprints are missing"),
        (lambda place: shutil.rmtree(place / "opt_state"), "opt_state is missing"),
        (lambda place: shutil.rmtree(place / "params"), "params is missing"),
        (lambda place: largest(place, "params").write_bytes(b""), "cannot be read"),
        (lambda place: largest(place, "opt_state").unlink(), "cannot be read"),
    ],
)
def test_what_is_cut_or_missing(run, damage, reason):
    damage(run / "checkpoints/9")
    step, skipped = found(run)
    assert step == 7 and reason in skipped[9]
    assert "\n" not in skipped[9] and len(skipped[9]) < 300


def test_altered_fingerprints(run):
    path = run / "checkpoints/9/fingerprints/metadata"
    values = json.loads(path.read_text())
    values["leaves"].popitem()
    path.write_text(json.dumps(values))
    assert found(run).skipped == {9: "its fingerprints are not as they were written"}


def test_a_step_under_another_name_and_another_run(run, tmp_path):
    place = run / "checkpoints"
    shutil.copytree(place / "7", place / "20")
    assert found(run) == (9, {20: "is that of step 7"})
    shutil.rmtree(place / "20")
    assert reader.problems(place, "other") == dict.fromkeys((7, 9), "is that of another run")


def test_strays_change_nothing(run):
    place = run / "checkpoints"
    for name in ("30", "notes", "40.orbax-checkpoint-tmp", "007"):
        (place / name).mkdir()
    (place / "50").write_text("")
    assert found(run) == (9, {}) and reader.newest(place) == 9
    renamed = writer.set_aside(place, [])
    assert sorted(path.name.partition(".")[0] for path in renamed) == ["007", "30", "50"]
    assert {"7", "9", "notes"} <= {path.name for path in place.iterdir()}


def test_skipped_steps_are_renamed_and_none_is_deleted(run):
    place = run / "checkpoints"
    before = len(list(place.iterdir()))
    (renamed,) = writer.set_aside(place, [9])
    assert renamed.name.startswith("9.broken-") and reader.steps(place) == [7]
    assert len(list(place.iterdir())) == before and reader.is_whole(renamed)


def test_nothing_that_verifies(run):
    for step in (7, 9):
        (run / f"checkpoints/{step}/fingerprints/metadata").write_text("[]")
    names = sorted(path.name for path in (run / "checkpoints").iterdir())
    with pytest.raises(BadInput, match="no checkpoint can be used: .*9: its .*7: its .* anew in"):
        load_model.open_run(run)
    assert names == sorted(path.name for path in (run / "checkpoints").iterdir())


def test_parameters_of_another_model(run):
    config = json.loads((run / "config.json").read_text())
    config["model"]["layers"] = 1
    (run / "config.json").write_text(json.dumps(config))
    facts = json.loads((run / "run.json").read_text())
    del facts["config"]
    (run / "run.json").write_text(json.dumps(facts))
    with pytest.raises(BadInput, match="params/encoder/blocks_1.*None by the config"):
        load_model.open_run(run)


def test_what_the_devices_hold_is_compared_with_what_was_saved(run):
    place = run / "checkpoints"
    leaves = reader.read_manifest(place / "9")
    writer.check_restored(place / "9", leaves)
    name = "params/encoder/pooler/bias"
    leaves[name] = Leaf(leaves[name].dtype, leaves[name].shape, "0" * 16)
    with pytest.raises(Unfinished, match=f"lies otherwise on the devices: {name}"):
        writer.check_restored(place / "9", leaves)


def test_a_save_that_fails_names_the_last_good_step(run, kept):
    """The directory goes while the next step is saved."""
    state = State(11, kept[2], {"count": np.int32(11)})
    leaves = reader.fingerprints(reader.items(state))
    with writer.manager(run / "checkpoints", keep=3) as checkpoints:
        writer.save(checkpoints, 11, state, leaves, "")
        checkpoints.wait_until_finished()
        shutil.rmtree(run / "checkpoints/11")
        with pytest.raises(Unfinished, match="11 has gone.*the last checkpoint is step 9"):
            writer.save(checkpoints, 13, state, leaves, "")


def test_steps_are_numbers_as_they_are_written(tmp_path):
    for name in ("8", "08", "²", "٣", "-1", "1e3", "9" * 19):
        (tmp_path / name / "params").mkdir(parents=True)
    assert reader.steps(tmp_path) == [8]


def test_a_save_that_failed_in_the_background_is_seen_by_the_next_report(run, kept):
    state = State(11, kept[2], {"count": np.int32(11)})
    leaves = reader.fingerprints(reader.items(state))
    with (
        pytest.raises(Unfinished, match="a checkpoint was not saved .*last checkpoint is step 9"),
        writer.manager(run / "checkpoints", keep=1) as checkpoints,
        small_files(),
    ):
        writer.save(checkpoints, 11, state, leaves, "")
        deadline = time.monotonic() + 9
        while time.monotonic() < deadline:
            writer.check(checkpoints)
            time.sleep(0.01)
    assert found(run) == (9, {})


def test_a_pipe_among_the_files(run):
    path = largest(run / "checkpoints/9", "params")
    path.unlink()
    os.mkfifo(path)
    assert "not a regular file" in found(run).skipped[9]


@pytest.mark.parametrize("error", [OSError(errno.EMFILE, "too many"), ValueError("UNAVAILABLE: x")])
def test_what_the_machine_cannot_read_now_is_not_damaged(run, monkeypatch, error):
    def read(*_):
        raise error

    monkeypatch.setattr(reader, "read", read)
    with pytest.raises(Unfinished, match="checkpoints/9: cannot be read now"):
        found(run)


def test_parameters_without_an_optimizer_state(run, kept):
    shutil.rmtree(run / "checkpoints/9/opt_state")
    assert found(run).step == 7
    assert_same(load_model.open_run(run).params, kept[2])


def test_an_altered_config_is_not_the_one_that_was_trained(run):
    config = json.loads((run / "config.json").read_text())
    config["model"]["heads"] = 2
    (run / "config.json").write_text(json.dumps(config))
    with pytest.raises(BadInput, match="config.json: altered: .*run.json has another digest"):
        load_model.open_run(run)


def test_a_run_does_not_say_where_compiled_programs_are_read(run):
    config = json.loads((run / "config.json").read_text())
    config["compilation_cache"] = str(run / "trap")
    (run / "config.json").write_text(json.dumps(config))
    opened = load_model.open_run(run).config.compilation_cache
    assert opened == load_model.config.base().compilation_cache != config["compilation_cache"]
    given = load_model.open_run(run, ["compilation_cache="]).config
    assert given.compilation_cache == ""


def test_save_keeps_the_run_readable(tmp_path):
    """The newest of two saves by the helper of other tests."""
    *_, params = make_run(tmp_path / "run")
    save(tmp_path / "run", 9, params)
    assert found(tmp_path / "run").step == 9


def test_errors_of_a_save_are_one_line(run, kept, capfd):
    """Orbax's threads print stacks, the main thread is told: here, that a file may not grow."""
    state = State(11, kept[2], {"count": np.int32(11)})
    leaves = reader.fingerprints(reader.items(state))
    with (
        pytest.raises(Unfinished, match="a checkpoint was not saved .*last checkpoint is step 9"),
        writer.manager(run / "checkpoints", keep=3) as checkpoints,
        small_files(),
    ):
        writer.save(checkpoints, 11, state, leaves, "")
        writer.finish(checkpoints)
    assert "Traceback" not in capfd.readouterr().err
    assert found(run) == (9, {})


def test_another_process_that_is_gone_is_no_failed_save(run):
    """Orbax waits for all by a collective, whose error numpy raises as one of its own."""
    gone = ValueError("UNKNOWN: Gloo AllGather failed: Connection reset by peer")
    full = ValueError("UNKNOWN: No space left on device")
    for error, kind in ((gone, ValueError), (full, Unfinished)):
        with (
            writer.manager(run / "checkpoints") as checkpoints,
            pytest.raises(kind) as raised,
            writer.saving(checkpoints),
        ):
            raise error
        assert cluster.is_loss(error) == (raised.value is error)
