"""The settings of the C library's memory: who starts with them, and that what a step gives back stays."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bert_jax.runs import allocator

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
    assert max(faults(GLIBC_TUNABLES=allocator.LASTING)) < 10
    assert min(faults()) > 10, "or the settings are for nothing"


@pytest.mark.parametrize("given", [None, "glibc.malloc.check=0"])
def test_settings_of_the_user_stay(monkeypatch, given):
    """A start that fails goes on without; os.environ is a copy, for what is changed is not undone otherwise."""
    monkeypatch.setattr(os, "environ", {"GLIBC_TUNABLES": given} if given else {})
    started = []

    def fail(*arguments):
        started.append(os.environ["GLIBC_TUNABLES"])
        raise OSError

    monkeypatch.setattr(os, "execv", fail)
    allocator.restart()
    assert started == ([] if given else [allocator.LASTING])
    assert os.environ.get("GLIBC_TUNABLES") == given


@pytest.mark.parametrize(
    ("arguments", "computes"),
    [
        (["pretrain", "--config", "demo"], True),
        (["--config.seed=1", "benchmark"], True),
        (["prepare"], False),
        (["--help"], False),
        ([], False),
    ],
)
def test_which_commands_compute(monkeypatch, arguments, computes):
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    assert allocator.computes_here(arguments) == computes


@pytest.mark.parametrize(
    ("device", "computes"),
    [
        (None, True),
        ("accel0", False),
        ("nvidia0", False),
        ("vfio/0", False),
        ("vfio/vfio", True),
        ("accel", True),
    ],
)
def test_a_host_with_an_accelerator_does_not_compute_itself(
    monkeypatch, tmp_path, device, computes
):
    if device:
        (tmp_path / device).parent.mkdir(exist_ok=True)
        (tmp_path / device).touch()
    monkeypatch.setattr(allocator, "DEVICES", tmp_path)
    for platforms, expected in (("", computes), ("cpu", True), ("tpu", False)):
        monkeypatch.setenv("JAX_PLATFORMS", platforms)
        assert allocator.computes_here(["pretrain"]) == expected


@pytest.mark.parametrize(
    "command", [["-m", "bert_jax"], [str(Path(sys.executable).with_name("bert-jax"))]]
)
@pytest.mark.parametrize(("name", "starts"), [("benchmark", 2), ("config", 1)])
def test_a_command_that_computes_starts_twice(tmp_path, command, name, starts):
    """Every start of the interpreter notes the settings that it has."""
    note = "import os; open('starts', 'a').write(os.environ.get('GLIBC_TUNABLES', '-') + '\\n')\n"
    (tmp_path / "sitecustomize.py").write_text(note)
    given = {key: os.environ[key] for key in os.environ if key != "GLIBC_TUNABLES"}
    given |= {"JAX_PLATFORMS": "cpu", "PYTHONPATH": str(tmp_path)}
    ended = subprocess.run(
        [sys.executable, *command, name, "--config", "nothing"],
        env=given,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ended.returncode == 2 and "--config nothing: no such config" in ended.stderr
    assert (tmp_path / "starts").read_text().split() == ["-", allocator.LASTING][:starts]
