"""Machines without a TPU do not hear of one."""

import os

import pytest

from bert_jax import libtpu


@pytest.mark.parametrize(("device", "hushed"), [(None, True), ("accel0", False), ("vfio/0", False)])
def test_where_there_is_a_tpu_nothing_is_set(monkeypatch, tmp_path, device, hushed):
    if device:
        (tmp_path / device).parent.mkdir(exist_ok=True)
        (tmp_path / device).touch()
    monkeypatch.setattr(libtpu, "DEVICES", tmp_path)
    monkeypatch.setattr(os, "environ", {"TPU_WORKER_HOSTNAMES": "a,b"})
    libtpu.hush()
    assert os.environ.pop("TPU_WORKER_HOSTNAMES") == "a,b"
    assert ("TPU_SKIP_MDS_QUERY" in os.environ) == hushed == bool(os.environ)
