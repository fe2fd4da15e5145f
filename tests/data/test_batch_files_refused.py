"""Saved batches that are not the config's, not whole or not there are refused in a line."""

import json
import resource
import shutil

import pytest
from kits.saved_world import World, refused, rewrite

from bert_jax import config
from bert_jax.cli import main
from bert_jax.data import feed
from bert_jax.errors import BadInput, Unfinished


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    made = World(tmp_path_factory.mktemp("world"))
    made.save(0, 10, made.saved)
    return made


@pytest.fixture
def copy(world, tmp_path):
    return shutil.copytree(world.saved, tmp_path / "copy")


@pytest.mark.parametrize(
    "key, value, there",
    [
        ("seed", 7, 12345),
        ("phases.short.batch", 8, 16),
        ("phases.long.length", 24, 32),
        ("phases.short.steps", 5, 6),
        ("objective.masking", "whole_word", "token"),
        ("objective.mask_rate", 0.2, 0.15),
        ("corpus.heldout", 0.2, 0.1),
        ("tokenizer.size", 150, 200),
        ("corpus.source", "elsewhere", None),
    ],
)
def test_batches_of_another_config(world, tmp_path, key, value, there):
    line = refused(world, tmp_path, batches=world.saved, **{key: value})
    assert f"config.{key}: " in line and f"{value!r} now" in line
    assert there is None or f"{there!r} there" in line


def test_another_order_of_phases(world, tmp_path):
    line = refused(world, tmp_path, batches=world.saved, phase_order="('long','short')")
    assert "config.phase_order: ['short', 'long'] there, ('long', 'short') now" in line


def test_what_does_not_decide_batches_may_differ(world):
    changes = {"mesh.fsdp": 2, "optimizer.learning_rate": 0.1, "model.layers": 1, "log.every": 1}
    opened = feed.open_feed(world.load(batches=world.saved, **changes), 0)
    assert opened.path == world.saved


def test_steps_that_are_not_there(world, tmp_path):
    world.save(1, 8, tmp_path / "saved")
    line = refused(world, tmp_path, batches=tmp_path / "saved")
    assert "holds the steps 1 to 7, the run needs 0 to 9" in line
    changed = {"phases.long.steps": 12}
    line = refused(world, tmp_path, batches=world.saved, **changed)
    assert "holds the steps 0 to 9, the run needs 0 to 17" in line


def test_more_heldout_rows_than_there_are(world, tmp_path):
    line = refused(world, tmp_path, batches=world.saved, **{"evaluate.rows": 14})
    assert "config.evaluate.rows=14" in line and "13 held-out rows of phase short" in line
    world.save(0, 10, tmp_path / "all", **{"evaluate.rows": 10**6})
    feed.open_feed(world.load(batches=tmp_path / "all", **{"evaluate.rows": 10**7}), 0)


TRAIN = "train/000000000000.npy"


def cut(path):
    (path / TRAIN).write_bytes((path / TRAIN).read_bytes()[:-1])


def flip(path):
    data = bytearray((path / TRAIN).read_bytes())
    data[-100] ^= 1
    (path / TRAIN).write_bytes(bytes(data))


def link(path):
    content = (path / TRAIN).read_bytes()
    (path / TRAIN).unlink()
    (path.parent / "outside.npy").write_bytes(content)
    (path / TRAIN).symlink_to(path.parent / "outside.npy")


def change(**values):
    def damage(path):
        rewrite(path, json.loads((path / "manifest.json").read_text()) | values)

    return damage


def leave(path):
    """A manifest that is sound in itself and names a file elsewhere."""
    manifest = json.loads((path / "manifest.json").read_text())
    manifest["files"]["../outside.npy"] = manifest["files"].pop(TRAIN)
    for phase in manifest["phases"].values():
        for block in phase["train"]["blocks"]:
            block["file"] = block["file"].replace(TRAIN, "../outside.npy")
    shutil.move(path / TRAIN, path.parent / "outside.npy")
    rewrite(path, manifest)


def edit(path):
    text = (path / "manifest.json").read_text()
    (path / "manifest.json").write_text(text.replace('"vocabulary": ', '"vocabulary": 1'))


@pytest.mark.parametrize(
    "damage, words",
    [
        (cut, f"{TRAIN}: "),
        (flip, f"{TRAIN}: altered since it was written"),
        (lambda path: (path / TRAIN).unlink(), f"{TRAIN}: missing"),
        (link, f"{TRAIN}: lies outside of the directory"),
        (leave, "../outside.npy: lies outside of the directory"),
        (edit, "manifest.json: altered since it was written"),
        (lambda path: (path / "manifest.json").write_text("{"), "manifest.json: unreadable"),
        (lambda path: (path / "manifest.json").write_text("[]"), "manifest.json: not of saved"),
        (change(format=2), "manifest.json: not of saved batches of format 1"),
        (change(steps=[0, 11]), "manifest.json: not of saved batches"),
        (change(phases={"short": 1}), "manifest.json: not of saved batches"),
        (change(files=3), "manifest.json: not of saved batches"),
        (shutil.rmtree, "no saved batches (no manifest.json)"),
        (lambda path: (path / "tokenizer/settings.json").unlink(), "settings.json: missing"),
    ],
)
def test_damaged_ones_are_named(world, copy, damage, words):
    damage(copy)
    line = refused(world, copy.parent, batches=copy)
    assert words in line and str(copy) in line


def test_what_nobody_hashes_is_still_looked_at(world, copy):
    """Other records behind the same number of bytes, and ids that no vocabulary has."""
    settings = world.load(batches=copy, store_hashes=False)
    data = (copy / TRAIN).read_bytes()
    (copy / TRAIN).write_bytes(data.replace(b"'positions', '|u1'", b"'positionz', '|u1'"))
    opened = feed.open_feed(settings, 0)
    phase = config.phases(settings)[0]
    with pytest.raises(BadInput, match=f"{TRAIN}: not the batches that the manifest says"):
        next(opened.train(phase, 0, 6))
    (copy / TRAIN).write_bytes(data[:200] + b"\xff" * (len(data) - 200))
    with pytest.raises(BadInput, match="(beyond the vocabulary|cannot be read)"):
        next(opened.train(phase, 0, 6))


@pytest.mark.parametrize(
    "options, words",
    [
        (["--steps", "5:2", "--save", "new"], "--steps 5:2: expected A:B for the steps A to B - 1"),
        (["--steps", "0:11", "--save", "new"], "--steps 0:11: expected A:B"),
        (["--steps", "3:3", "--save", "new"], "--steps 3:3: expected A:B"),
        (["--steps", "3", "--save", "new"], "--steps: 3: expected A:B"),
        (["--steps", "a:b", "--save", "new"], "--steps: a:b: expected A:B"),
        (["--steps=-1:4", "--save", "new"], "--steps: -1:4: expected A:B"),
        (["--steps", "0:2"], "expected --step N, or --steps A:B and --save DIR"),
        (["--save", "new"], "expected --step N, or --steps A:B and --save DIR"),
        (["--step", "1", "--save", "new"], "expected --step N, or --steps A:B and --save DIR"),
        (["--step", "1", "--steps", "0:1"], "expected --step N, or --steps A:B and --save DIR"),
        ([], "expected --step N, or --steps A:B and --save DIR"),
        (["--steps", "0:2", "--save", "new", "--rows", "2"], "--rows 2: "),
        (["--steps", "0:2", "--save", "there"], "--save there: there already"),
        (["--steps", "0:2", "--save", "there/file"], "--save there/file: there already"),
        (["--steps", "0:2", "--save", "there/file/new"], "--save "),
        (["--steps", "0:2", "--save", "new", "--config.batches=there"], "config.batches=there: "),
    ],
)
def test_odd_options(world, tmp_path, monkeypatch, capsys, options, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there").mkdir()
    (tmp_path / "there/file").write_text("")
    assert main(["inspect", *world.arguments(*options)]) == 2
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert error.startswith("bert-jax: ") and words in error
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["file", "there"]


@pytest.mark.parametrize("missing", [1, 3000])
def test_a_disk_that_takes_no_more(world, tmp_path, missing):
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    room = (world.saved / TRAIN).stat().st_size - missing
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, limits[1]))
    try:
        with pytest.raises(Unfinished, match="--save .*new: not written"):
            world.save(0, 6, tmp_path / "new")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert not list(tmp_path.iterdir())
