"""Machines without a TPU do not hear of one."""

import os
import signal
import subprocess
import sys

import pytest
from slices import needs_libtpu
from small import SMALL, overrides

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


@needs_libtpu
def test_a_command_that_is_told_to_end_says_nothing(tmp_path):
    """JAX has loaded the library by then, which has seen no TPU and would write its stacks."""
    keys = [f"--config.{key}" for key in overrides(SMALL | {"store": tmp_path / "store"})]
    command = [sys.executable, "-m", "bert_jax", "benchmark", "--config", "demo", *keys]
    given = {name: value for name, value in os.environ.items() if name != "JAX_PLATFORMS"}
    with subprocess.Popen(command, env=given, stderr=subprocess.PIPE, text=True) as child:
        assert child.stderr.readline() == "benchmark: phase main is compiled\n"
        child.terminate()
        assert child.stderr.read() == ""
    assert child.returncode == -signal.SIGTERM
