"""Saved batches of another config, damaged ones and missing ones are refused in one line."""

import shutil

import pytest
from kits import malformed_inputs, saved_batches
from kits.damage import flip_bit
from kits.full_disk import full_disk
from kits.saved_batches import refused, rewrite

from bert_jax import config
from bert_jax.errors import BadInput, Unfinished
from bert_jax.tasks import feed

TRAIN = "short/000000000000.npz"
world = saved_batches.world


@pytest.fixture
def copy(world, tmp_path):
    return shutil.copytree(world.saved, tmp_path / "copy")


@pytest.mark.parametrize(
    "key, value",
    [
        ("seed", 7),
        ("phases.short.batch", 8),
        ("phases.short.steps", 5),
        ("corpus.source", "elsewhere"),
        ("task.masking", "whole_word"),
        ("phase_order", ("long", "short")),
        ("tokenizer.size", 300),
    ],
)
def test_batches_of_another_config_are_refused(world, tmp_path, key, value):
    assert key in refused(world, tmp_path, batches=world.saved, **{key: value})


def test_a_phase_that_is_not_saved_is_refused(world, tmp_path):
    world.save(0, 2, tmp_path / "saved")
    settings = world.load(batches=tmp_path / "saved")
    opened, (_, phase) = feed.open_feed(settings), config.phases(settings)
    for read in (
        lambda: opened.evaluation(phase, "heldout", 8),
        lambda: list(opened.train(phase, 6, 7)),
    ):
        with pytest.raises(BadInput, match=f"{tmp_path}/saved"):
            read()


def test_keys_that_do_not_affect_batches_may_differ(world, tmp_path):
    source = shutil.copy(world.settings["corpus.source"], tmp_path / "text.txt")
    changes = {"corpus.source": source}
    changes |= {"mesh.fsdp": 2, "optimizer.learning_rate": 0.1, "model.layers": 1, "log.every": 1}
    changes |= {"phases.long.steps": 3}
    opened = feed.open_feed(world.load(batches=world.saved, **changes), 0)
    assert opened.path == world.saved


@pytest.mark.slow
def test_steps_that_are_not_saved_are_refused(world, tmp_path):
    world.save(1, 8, tmp_path / "saved")
    for path, changes in ((tmp_path / "saved", {}), (world.saved, {"phases.long.steps": 12})):
        assert str(path) in refused(world, tmp_path, batches=path, **changes)


def test_more_heldout_rows_than_saved_are_refused(world, tmp_path):
    line = refused(world, tmp_path, batches=world.saved, **{"evaluate.rows": 10})
    assert "config.evaluate.rows=10" in line
    world.save(0, 10, tmp_path / "all", **{"evaluate.rows": 10**6})
    feed.open_feed(world.load(batches=tmp_path / "all", **{"evaluate.rows": 10**7}), 0)


def truncate(path):
    (path / TRAIN).write_bytes((path / TRAIN).read_bytes()[:-1])


@pytest.mark.slow
@pytest.mark.parametrize(
    "damage, named",
    [
        (truncate, TRAIN),
        (lambda path: flip_bit(path / TRAIN), TRAIN),
        (lambda path: rewrite(path, {"format": 1}), "manifest.json"),
        (shutil.rmtree, "manifest.json"),
    ],
)
def test_damaged_files_are_named(world, copy, damage, named):
    damage(copy)
    line = refused(world, copy.parent, batches=copy)
    assert named in line and str(copy) in line


def test_a_flipped_bit_is_detected_without_hashes(world, copy):
    settings = world.load(batches=copy, verify_store=False)
    opened, phase = feed.open_feed(settings, 0), config.phases(settings)[0]
    flip_bit(copy / TRAIN, 1000)
    with pytest.raises(BadInput, match=TRAIN):
        list(opened.train(phase, 0, 1))


@pytest.mark.parametrize(
    "options, named",
    [
        (["--steps", "5:2", "--save", "new"], "5:2"),
        (["--steps", "0:2", "--save", "there"], "--save there"),
        (["--steps", "0:2", "--save", "new", "--config.batches=there"], "config.batches=there"),
    ],
)
def test_invalid_options_are_refused(world, tmp_path, monkeypatch, options, named):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there").mkdir()
    (tmp_path / "there/file").write_text("")
    assert named in malformed_inputs.refused("inspect", *world.arguments(*options))
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["file", "there"]


def test_a_full_disk_leaves_no_files(world, tmp_path):
    room = (world.saved / TRAIN).stat().st_size - 3000
    with full_disk(room), pytest.raises(Unfinished, match="--save .*new"):
        world.save(0, 6, tmp_path / "new")
    assert not list(tmp_path.iterdir())
