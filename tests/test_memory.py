"""The settings of the C library's memory: who starts with them, and that what a step gives back stays."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bert_jax import __main__ as program

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="settings of glibc")

# Page faults of the second time that a thread takes 100 MB, fills them in and gives them back, then those of 10 MB.
FAULTS = """
import ctypes, resource, threading
library = ctypes.CDLL(None)
library.malloc.restype, library.memset.argtypes = ctypes.c_void_p, (ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t)
library.free.argtypes = library.malloc.argtypes = (ctypes.c_size_t,)
def fill(size):
    for _ in range(2):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        place = library.malloc(size)
        library.memset(place, 1, size)
        library.free(place)
    print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
for size in (100_000_000, 10_000_000):
    thread = threading.Thread(target=fill, args=(size,))
    thread.start()
    thread.join()
"""


def faults(**variables) -> list[int]:
    given = {key: os.environ[key] for key in os.environ if key != "GLIBC_TUNABLES"} | variables
    command = [sys.executable, "-c", FAULTS]
    ended = subprocess.run(command, env=given, capture_output=True, text=True, check=True)
    return [int(line) for line in ended.stdout.split()]


def test_memory_of_a_thread_is_filled_in_once():
    assert max(faults(GLIBC_TUNABLES=program.MEMORY)) < 10
    assert min(faults()) > 10, "or the settings are for nothing"


@pytest.mark.parametrize(
    ("command", "variables", "is_restarted"),
    [
        ("pretrain", {"JAX_PLATFORMS": "cpu"}, True),
        ("benchmark", {"JAX_PLATFORMS": "cpu"}, True),
        ("pretrain", {"JAX_PLATFORMS": "cpu", "GLIBC_TUNABLES": "glibc.malloc.check=0"}, False),
        ("pretrain", {"JAX_PLATFORMS": "cpu", "GLIBC_TUNABLES": program.MEMORY}, False),
        ("prepare", {"JAX_PLATFORMS": "cpu"}, False),
        ("--help", {"JAX_PLATFORMS": "cpu"}, False),
    ],
)
def test_who_starts_again(monkeypatch, command, variables, is_restarted):
    started = []
    monkeypatch.delenv("GLIBC_TUNABLES", raising=False)
    for key, value in variables.items():
        monkeypatch.setenv(key, value)
    monkeypatch.setattr(sys, "argv", ["bert-jax", command])
    monkeypatch.setattr(
        os, "execv", lambda *arguments: started.append(os.environ["GLIBC_TUNABLES"])
    )
    program.restart_with_lasting_memory()
    assert started == [program.MEMORY] * is_restarted
    if not is_restarted:  # and those that it starts have the user's settings, if any
        assert os.environ.get("GLIBC_TUNABLES") in (None, "glibc.malloc.check=0")


@pytest.mark.parametrize(
    ("device", "computes"),
    [(None, True), ("accel0", False), ("nvidia0", False), ("vfio/0", False), ("vfio/vfio", True)],
)
def test_a_host_with_an_accelerator_does_not_compute_itself(
    monkeypatch, tmp_path, device, computes
):
    if device:
        (tmp_path / device).parent.mkdir(exist_ok=True)
        (tmp_path / device).touch()
    monkeypatch.setattr(program, "DEVICES", tmp_path)
    monkeypatch.setattr(sys, "argv", ["bert-jax", "pretrain"])
    monkeypatch.setenv("JAX_PLATFORMS", "")
    assert program.computes_here() == computes
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    assert program.computes_here()


def test_a_command_that_computes_says_the_same(tmp_path):
    """The real thing: it starts again once, and ends as it must."""
    command = [sys.executable, "-m", "bert_jax", "benchmark", "--config", "nothing"]
    given = {key: os.environ[key] for key in os.environ if key != "GLIBC_TUNABLES"}
    ended = subprocess.run(
        command,
        env=given | {"JAX_PLATFORMS": "cpu"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ended.returncode == 2 and ended.stderr.startswith(
        "bert-jax: --config nothing: no such config"
    )
    assert not list(Path(tmp_path).iterdir())
