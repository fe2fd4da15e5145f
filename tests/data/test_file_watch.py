"""A store, or saved batches, that change under a run end it: the file named, and nothing saved after."""

import os
import shutil

import pytest
from kits.saved_world import World

from bert_jax import loop
from bert_jax.checkpoints import reader
from bert_jax.cli import main
from bert_jax.data import feed, file_watch
from bert_jax.data import store as stores
from bert_jax.errors import BadInput
from bert_jax.runs import workdir
from bert_jax.storage import checksums

TOKENS = "train/tokens.npy"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    world = World(tmp_path_factory.mktemp("world"))
    world.save(0, 10, world.saved)
    return world


def flip(path):
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    with open(path, "r+b") as file:  # the same file, as a disk or a colleague would
        file.write(content)


def grow(path):
    with open(path, "ab") as file:
        file.write(b"more")


def replace(path):
    path.with_name("new").write_bytes(b"other" * 100)
    os.replace(path.with_name("new"), path)


def flip_and_hide(path):
    """As it was by size and time."""
    before = path.stat()
    flip(path)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


CHANGES = [flip, grow, replace, flip_and_hide, lambda path: path.unlink()]


@pytest.fixture
def store(made, tmp_path):
    return shutil.copytree(made.settings["store"], tmp_path / "store")


@pytest.mark.parametrize("change", CHANGES, ids=["flip", "grow", "replace", "hide", "remove"])
@pytest.mark.parametrize("name", [TOKENS, "tokenizer/settings.json", "manifest.json"])
def test_changes_are_named(store, name, change):
    seen = file_watch.Watch(store, stores.read_manifest(store)["files"])
    seen.check()
    change(store / name)
    with pytest.raises(BadInput) as caught:
        seen.check()
    assert str(caught.value).startswith(f"{store / name}: changed while it was read: ")


def test_the_same_bytes_are_read_once_more(store, monkeypatch):
    seen = file_watch.Watch(store, stores.read_manifest(store)["files"])
    read = []
    digest = checksums.digest
    monkeypatch.setattr(checksums, "digest", lambda path: read.append(path.name) or digest(path))
    os.utime(store / TOKENS)
    shutil.copy2(store / "unigrams.npy", store / "copy")
    os.replace(store / "copy", store / "unigrams.npy")
    seen.check()
    assert sorted(read) == ["tokens.npy", "unigrams.npy"]
    seen.check()
    assert len(read) == 2


@pytest.mark.parametrize("key", ["store", "batches"])
def test_a_run_whose_data_change_ends(made, tmp_path, monkeypatch, capsys, key):
    """At step 5, between two reports."""
    place = shutil.copytree(
        made.saved if key == "batches" else made.settings["store"], tmp_path / "data"
    )
    name = "tokenizer/settings.json"
    advance = loop.Loop.batches

    def batches(self, phase, step):
        for rows in advance(self, phase, step):
            step += 1
            if step == 5:
                grow(place / name)
            yield rows

    monkeypatch.setattr(loop.Loop, "batches", batches)
    run = tmp_path / "run"
    assert main(["pretrain", *made.arguments("--workdir", run, **{key: place})]) == 2
    line = capsys.readouterr().err.strip()
    assert line.startswith(f"bert-jax: {place / name}: changed while it was read: ")
    assert line.endswith("the last checkpoint is step 3") and "\n" not in line
    assert reader.newest(run / "checkpoints") == 3
    assert workdir.read_json(run / "status.json")["state"] == "failed"


@pytest.mark.parametrize("key", ["store", "batches"])
def test_both_feeds_look(made, monkeypatch, key):
    data = feed.open_feed(made.load(**({"batches": made.saved} if key == "batches" else {})), 0)
    data.check_unchanged()
    monkeypatch.setattr(file_watch, "stamp", lambda path: None)
    monkeypatch.setattr(checksums, "check_file", lambda *_, **__: "another one")
    with pytest.raises(BadInput, match="changed while it was read: another one"):
        data.check_unchanged()
