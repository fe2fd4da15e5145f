"""Checks before step 0: a disk without room for the checkpoints is refused."""

import shutil
from collections import namedtuple

import jax
import numpy as np
import pytest
from kits.small import small_config

from bert_jax.errors import BadInput
from bert_jax.runs import preflight

SHAPES = {"params": jax.ShapeDtypeStruct((1 << 20, 256), np.float32)}  # one GiB
Usage = namedtuple("Usage", "total used free")


def test_a_disk_without_room_for_the_next_checkpoints_is_refused(tmp_path, monkeypatch):
    """The two newest and one that is being written take three GiB."""

    def check(free: float, *overrides: str) -> None:
        monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(0, 0, free))
        config = small_config("checkpoint.every=5", *overrides)
        preflight.check_disk(config, tmp_path, SHAPES)

    check(3.1 * 2**30)
    with pytest.raises(BadInput, match="7 checkpoints"):  # four of its 20 steps are kept for ever
        check(6.9 * 2**30, "checkpoint.keep_every=5")
    with pytest.raises(BadInput, match="config.checkpoint.keep=2: 3 checkpoints of 1.00 GiB"):
        check(2.9 * 2**30)
    (tmp_path / "checkpoints" / "5").mkdir(parents=True)  # a resumed run already has some
    check(2.9 * 2**30)
