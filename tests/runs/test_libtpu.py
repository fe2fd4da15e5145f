"""Machines without a TPU do not hear of one."""

import os
import signal
import subprocess
import sys

import pytest
from kits.slices import needs_libtpu
from kits.small import SMALL, overrides

from bert_jax.cli import main
from bert_jax.runs import libtpu


@pytest.mark.parametrize(("device", "hushed"), [(None, True), ("accel0", False), ("vfio/0", False)])
def test_where_there_is_a_tpu_nothing_is_set(monkeypatch, tmp_path, device, hushed):
    if device:
        (tmp_path / device).parent.mkdir(exist_ok=True)
        (tmp_path / device).touch()
    monkeypatch.setattr(libtpu, "DEVICES", tmp_path)
    monkeypatch.setattr(os, "environ", {"TPU_WORKER_HOSTNAMES": "a,b"})
    libtpu.settle()
    assert os.environ.pop("TPU_WORKER_HOSTNAMES") == "a,b"
    os.environ.pop(libtpu.FLAGS, "")
    assert ("TPU_SKIP_MDS_QUERY" in os.environ) == hushed == bool(os.environ)


@pytest.mark.parametrize("given", ["", "--another=1", f"--{libtpu.STACK}=65536"])
@pytest.mark.parametrize("text", [b"flags: " + libtpu.STACK.encode(), b"flags: others", b""])
def test_stacks_are_widened_where_the_library_can(monkeypatch, tmp_path, given, text):
    """And the user has not said how wide."""
    library = tmp_path / "libtpu.so"
    library.write_bytes(text)
    monkeypatch.setenv("TPU_LIBRARY_PATH", str(library))
    monkeypatch.setenv(libtpu.FLAGS, given)
    for _ in range(2):
        libtpu.widen()
        can = libtpu.STACK.encode() in text and libtpu.STACK not in given
        added = f" --{libtpu.STACK}={libtpu.STACK_BYTES}" if can else ""
        assert os.environ[libtpu.FLAGS] == f"{given}{added}".strip()


@pytest.mark.parametrize("path", ["", "/no/such/library.so"])
def test_no_library_can_nothing(monkeypatch, path):
    monkeypatch.setenv("TPU_LIBRARY_PATH", path)
    monkeypatch.setattr(libtpu.importlib.util, "find_spec", lambda name: None)
    assert not libtpu.knows("")


@needs_libtpu
@pytest.mark.slow
@pytest.mark.parametrize("size, code", [(libtpu.STACK_BYTES, 0), (1 << 16, 1)])
def test_a_program_that_overflows_the_usual_stack(monkeypatch, capsys, size, code):
    """A layer of BERT-base, 16 rows a chip, whose attention is computed again."""
    monkeypatch.setenv(libtpu.FLAGS, f"--{libtpu.STACK}={size}")
    words = ["plan", "--config", "bert_base", "--phase", "short", "--topology", "v5e:2x2"]
    changes = {"model.layers": 1, "train.remat": "full", "phases.short.batch": 64}
    words += [f"--config.{key}={value}" for key, value in changes.items()]
    assert main([*words, "--config.compilation_cache="]) == code
    assert ("crashed (SIGSEGV)" in capsys.readouterr().err) == bool(code)


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
