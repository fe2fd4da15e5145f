"""Saved batches that are not the config's, not whole or not there are refused in a line."""

import shutil

import numpy as np
import pytest
from kits import saved_world
from kits.damage import flip_bit
from kits.full_disk import full_disk
from kits.saved_world import refused, rewrite

from bert_jax import config
from bert_jax.cli import main
from bert_jax.data import feed
from bert_jax.errors import BadInput, Unfinished

TRAIN = "short/000000000000.npz"
world = saved_world.world


@pytest.fixture
def copy(world, tmp_path):
    return shutil.copytree(world.saved, tmp_path / "copy")


@pytest.mark.parametrize(
    "key, value",
    [
        ("seed", 7),
        ("phases.short.batch", 8),
        ("phases.short.steps", 5),
        ("objective.masking", "whole_word"),
        ("corpus.source", "elsewhere"),
        ("phase_order", ("long", "short")),
    ],
)
def test_batches_of_another_config(world, tmp_path, key, value):
    line = refused(world, tmp_path, batches=world.saved, **{key: value})
    assert f"config.{key}: " in line and repr(value) in line


def test_what_does_not_decide_batches_may_differ(world):
    changes = {"mesh.fsdp": 2, "optimizer.learning_rate": 0.1, "model.layers": 1, "log.every": 1}
    opened = feed.open_feed(world.load(batches=world.saved, **changes), 0)
    assert opened.path == world.saved


@pytest.mark.slow
def test_steps_that_are_not_there(world, tmp_path):
    world.save(1, 8, tmp_path / "saved")
    for place, changes in ((tmp_path / "saved", {}), (world.saved, {"phases.long.steps": 12})):
        assert str(place) in refused(world, tmp_path, batches=place, **changes)


def test_more_heldout_rows_than_there_are(world, tmp_path):
    line = refused(world, tmp_path, batches=world.saved, **{"evaluate.rows": 10})
    assert "config.evaluate.rows=10" in line
    world.save(0, 10, tmp_path / "all", **{"evaluate.rows": 10**6})
    feed.open_feed(world.load(batches=tmp_path / "all", **{"evaluate.rows": 10**7}), 0)


def cut(path):
    (path / TRAIN).write_bytes((path / TRAIN).read_bytes()[:-1])


@pytest.mark.slow
@pytest.mark.parametrize(
    "damage, named",
    [
        (cut, TRAIN),
        (lambda path: flip_bit(path / TRAIN), TRAIN),
        (lambda path: (path / TRAIN).unlink(), TRAIN),
        (lambda path: flip_bit(path / "manifest.json", 40), "manifest.json"),
        (lambda path: (path / "manifest.json").write_text("{"), "manifest.json"),
        (lambda path: rewrite(path, {"format": 1}), "manifest.json"),
        (shutil.rmtree, "manifest.json"),
    ],
)
def test_damaged_ones_are_named(world, copy, damage, named):
    damage(copy)
    line = refused(world, copy.parent, batches=copy)
    assert named in line and str(copy) in line


def rename_an_array(path):
    with np.load(path / TRAIN) as file:
        arrays = dict(file)
    np.savez(path / TRAIN, **{name.replace("positions", "x"): arrays[name] for name in arrays})


def put_an_unknown_id(path):
    with np.load(path / TRAIN) as file:
        arrays = dict(file)
    arrays["tokens"][0, 3, 5] = 255
    np.savez(path / TRAIN, **arrays)


@pytest.mark.parametrize("damage", [rename_an_array, put_an_unknown_id])
def test_what_nobody_hashes_is_still_looked_at(world, copy, damage):
    settings = world.load(batches=copy, store_hashes=False)
    opened, phase = feed.open_feed(settings, 0), config.phases(settings)[0]
    damage(copy)
    with pytest.raises(BadInput, match=TRAIN):
        list(opened.train(phase, 0, 1))


@pytest.mark.parametrize(
    "options, named",
    [
        (["--steps", "5:2", "--save", "new"], "5:2"),
        (["--steps", "a:b", "--save", "new"], "a:b"),
        (["--steps", "0:2", "--save", "there"], "--save there"),
        (["--steps", "0:2", "--save", "new", "--config.batches=there"], "config.batches=there"),
    ],
)
def test_odd_options(world, tmp_path, monkeypatch, capsys, options, named):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there").mkdir()
    (tmp_path / "there/file").write_text("")
    assert main(["inspect", *world.arguments(*options)]) == 2
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert error.startswith("bert-jax: ") and named in error
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["file", "there"]


@pytest.mark.parametrize("missing", [1, 3000])
def test_a_disk_that_takes_no_more(world, tmp_path, missing):
    room = (world.saved / TRAIN).stat().st_size - missing
    with full_disk(room), pytest.raises(Unfinished, match="--save .*new"):
        world.save(0, 6, tmp_path / "new")
    assert not list(tmp_path.iterdir())
