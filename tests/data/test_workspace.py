"""The workspace in which a store is built: one process and one key at a time; its shards are never read damaged."""

import functools
import os

import numpy as np
import pytest

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


ARRAYS = {
    "tokens": np.arange(40, dtype=np.uint16),
    "sentences": np.full(4, 10, np.uint32),
    "documents": np.zeros(0, np.uint32),
    "text_hashes": np.arange(6, dtype=np.uint64).reshape(3, 2),
}


def test_a_flipped_bit_never_changes_an_array(tmp_path):
    """Some bits, as in names and dates that the format stores twice, may flip undetected without effect."""
    shard = shards.Shard(tmp_path / "one.npz", 0)
    shard.write({"kept": 3}, ARRAYS)
    content, noticed = shard.path.read_bytes(), 0
    for place in range(len(content)):
        flipped = bytearray(content)
        flipped[place] ^= (1 << place % 8) * (place > 0)
        shard.path.write_bytes(flipped)
        try:
            assert shard.header() == {"kept": 3}
            for name, array in zip(ARRAYS, shard.read(*ARRAYS), strict=True):
                np.testing.assert_array_equal(array, ARRAYS[name], strict=True)
        except Unfinished as error:
            assert "one.npz" in str(error) and not shard.path.exists()
            noticed += 1
    assert noticed > len(content) / 2
