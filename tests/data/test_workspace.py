"""The directory in which a store is made: for one process, of one plan."""

import os

import pytest

from bert_jax.data.preparation import workspace
from bert_jax.errors import BadInput


def names(directory) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_in_use_is_refused_and_touched_by_nobody(tmp_path):
    with workspace.workspace(tmp_path / "store") as directory:
        (directory / "mine").write_text("mine")
        with pytest.raises(BadInput, match=f"{tmp_path}/store"):
            workspace.workspace(tmp_path / "store").__enter__()
        workspace.clear(tmp_path / "store")
        assert names(directory) == ["mine"]
    workspace.clear(tmp_path / "store")
    assert names(tmp_path) == []


def test_places_that_cannot_be_renamed_to_are_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "circle").symlink_to("circle")
    (tmp_path / "mounted").mkdir()
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(os.path, "ismount", lambda path: path.name == "mounted")
    assert workspace.locate("new/store") == tmp_path / "new/store"
    for store in (".", "circle", "mounted", "file", "x" * 300):
        with pytest.raises(BadInput, match=f"config.store='{store}'"):
            workspace.locate(store)
    (tmp_path / "mounted/manifest.json").write_text("{}")  # a store that was copied there
    assert workspace.locate("mounted") == tmp_path / "mounted"
