"""The workspace in which a store is built: one process and one key at a time; its shards are never read damaged."""

import functools
import os

import numpy as np
import pytest
from kits.damage import flip_bit

from bert_jax.data.preparation import shards, workspace
from bert_jax.errors import BadInput, Unfinished


def test_a_locked_workspace_is_refused_and_another_key_starts_over(tmp_path):
    logged = []
    work = functools.partial(workspace.workspace, tmp_path / "store", log=logged.append)
    tries = [("one", False, OSError), ("one", True, OSError), ("two", False, BadInput)]
    for key, is_kept, error in [*tries, ("one", True, OSError)]:
        with pytest.raises(error), work(key) as directory:
            assert (directory / "mine").exists() == is_kept
            (directory / "mine").write_text("mine")
            with pytest.raises(BadInput, match=f"{tmp_path}/store"):
                work(key).__enter__()
            raise error
    assert len(logged) == 1 and str(tmp_path) in logged[0]
    with work("one"):
        pass
    assert not list(tmp_path.iterdir())
    with pytest.raises(BadInput), work("one"):
        raise BadInput
    assert not list(tmp_path.iterdir())


def test_paths_that_cannot_be_renamed_to_are_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mounted").mkdir()
    (tmp_path / "file").write_text("")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/thesis.tex").write_text("")
    monkeypatch.setattr(os.path, "ismount", lambda path: path.name == "mounted")
    assert workspace.resolve_path("new/store") == tmp_path / "new/store"
    for store in (".", "mounted", "file", "mine", "x" * 300):
        with pytest.raises(BadInput, match=f"config.store.*{store}"):
            workspace.resolve_path(store)


# --- Shards ---------------------------------------------------------------------------------------


def test_a_damaged_shard_is_deleted(tmp_path):
    tokens, shard = np.arange(40, dtype=np.uint16), shards.Shard(tmp_path / "one.npz", 0)
    for part in (b"kept", tokens.tobytes(), b"PK"):
        shard.write({"kept": 3}, tokens=tokens)
        assert shard.header() == {"kept": 3} and (shard.read("tokens")[0] == tokens).all()
        flip_bit(shard.path, shard.path.read_bytes().rindex(part))
        with pytest.raises(Unfinished, match="one.npz"):
            shard.read("header", "tokens")
        assert not shard.path.exists()
