"""The directory in which a store is made: for one process, of one plan."""

import fcntl
import os

import pytest

from bert_jax.data.preparation import workplace
from bert_jax.errors import BadInput


def names(directory) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_in_use_is_refused_and_touched_by_nobody(tmp_path):
    with workplace.workplace(tmp_path / "store") as directory:
        (directory / "mine").write_text("mine")
        with pytest.raises(BadInput, match="another process is preparing"):
            with workplace.workplace(tmp_path / "store"):
                pass
        workplace.clear(tmp_path / "store")
        assert names(directory) == ["mine"]
    workplace.clear(tmp_path / "store")
    assert names(tmp_path) == []


def test_places_that_cannot_be_renamed_to(tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    with pytest.raises(BadInput, match="config.store='.': is the current directory"):
        workplace.locate(".")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "circle").symlink_to("circle")
    (tmp_path / "mounted").mkdir()
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(os.path, "ismount", lambda path: path.name == "mounted")
    for store, message in [
        ("circle", "a link that leads to itself"),
        ("mounted", "is a mount point"),
        ("file", "exists, and is not a token store"),
        ("x" * 300, "cannot be read .File name too long"),
    ]:
        with pytest.raises(BadInput, match=f"config.store='{store}': {message}"):
            workplace.locate(store)
    assert workplace.locate("new/store") == tmp_path / "new/store"
    (tmp_path / "mounted/manifest.json").write_text("{}")  # a store that was copied there
    assert workplace.locate("mounted") == tmp_path / "mounted"


def test_just_prepared_by_another_is_told(tmp_path, monkeypatch):
    """The directory is renamed away between opening and locking it."""
    lock = fcntl.flock

    def late(*arguments):
        os.rmdir(tmp_path / ".store.preparing")
        lock(*arguments)

    monkeypatch.setattr(fcntl, "flock", late)
    with pytest.raises(BadInput, match="another process has just prepared"):
        with workplace.workplace(tmp_path / "store"):
            pass


def test_bad_input_leaves_nothing_and_other_errors_all(tmp_path):
    for error, left in [
        (KeyboardInterrupt, [".store.preparing"]),
        (OSError, [".store.preparing"]),
        (BadInput, []),
    ]:
        with pytest.raises(error):
            with workplace.workplace(tmp_path / "store") as directory:
                (directory / "shards").mkdir(exist_ok=True)
                raise error("x")
        assert names(tmp_path) == left


def test_only_what_is_of_the_same_plan_is_kept(tmp_path):
    def fill():
        for name in ("shards", "vocabulary-1", "text", "store", "scratch", "vocabulary.writing"):
            (tmp_path / name).mkdir(exist_ok=True)

    fill()
    lines = []
    workplace.follow({"a": 1}, tmp_path, lines.append)
    assert names(tmp_path) == ["plan.json", "text"] and not lines
    fill()
    workplace.follow({"a": 1}, tmp_path, lines.append)
    assert names(tmp_path) == ["plan.json", "shards", "text", "vocabulary-1"] and not lines
    workplace.follow({"a": 2}, tmp_path, lines.append)
    assert names(tmp_path) == ["plan.json", "text"] and len(lines) == 1
    fill()
    (tmp_path / "plan.json").write_text("{")
    workplace.follow({"a": 2}, tmp_path, lines.append)
    assert names(tmp_path) == ["plan.json", "text"] and len(lines) == 2
