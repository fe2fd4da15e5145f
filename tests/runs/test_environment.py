"""The environment variables of XLA on GPUs, of libtpu, and of malloc on CPUs; the silence of compilers for GPUs."""

import json
import os
import platform
import subprocess
import sys

import pytest
from jax.experimental import topologies
from kits.slices import needs_libtpu

from bert_jax.cli import main
from bert_jax.parallel import chips
from bert_jax.planning import compiler
from bert_jax.runs import environment

FIRST, SECOND = environment.GPU_FLAGS
IS_GLIBC = platform.libc_ver()[0] == "glibc"
# The command line with a main that reports its process instead of running a command.
PROGRAM = """
import json, os, sys
from bert_jax import __main__
__main__.main = lambda: print(json.dumps([os.getpid(), os.environ.get("GLIBC_TUNABLES"), sys.argv[1:]])) or 75
__main__.run()
"""


@pytest.fixture(autouse=True)
def unset(monkeypatch):
    for name in ("XLA_FLAGS", *environment.SHARES, "JAX_PLATFORMS"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.NO_TPU.items():
        monkeypatch.setenv(name, os.environ.get(name, value))


def test_flags_of_the_user_are_kept(monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", f"--{FIRST}=true --other=1")
    os.environ |= environment.gpu_flags()
    assert os.environ["XLA_FLAGS"] == f"--{FIRST}=true --other=1 --{SECOND}=false"
    assert not environment.gpu_flags()


@pytest.mark.parametrize("release, is_set", [("0.10.2", True), ("0.13.0", False)])
def test_flags_are_set_only_for_versions_that_have_them(monkeypatch, release, is_set):
    """An unknown flag ends the process."""
    monkeypatch.setattr(environment, "version", lambda name: release)
    assert bool(environment.gpu_flags()) == is_set


@pytest.mark.parametrize("has_gpu", [False, True])
def test_flags_are_set_and_printed_where_there_is_a_gpu(monkeypatch, capsys, has_gpu):
    monkeypatch.setattr(environment, "has_device", lambda patterns: has_gpu)
    monkeypatch.setattr(environment, "has_gpu_compiler", lambda: False)
    assert main(["env"]) == 0
    assert (f"XLA_FLAGS='--{FIRST}=" in capsys.readouterr().out) == has_gpu
    environment.configure()
    assert ("XLA_FLAGS" in os.environ) == has_gpu
    assert os.environ.get(environment.SHARES[0]) == ("0.9" if has_gpu else None)


@pytest.mark.parametrize("name", environment.SHARES)
def test_a_share_of_the_memory_of_the_user_is_kept(monkeypatch, name):
    monkeypatch.setattr(environment, "has_device", lambda patterns: True)
    monkeypatch.setenv(name, "0.5")
    assert not set(environment.SHARES) & environment.gpu_variables().keys()
    assert environment.memory_share() == 0.5


@pytest.mark.parametrize("is_installed, platforms", [(True, "cpu"), (False, None)])
def test_a_compiler_without_a_gpu_is_no_device(monkeypatch, is_installed, platforms):
    monkeypatch.setattr(environment, "has_device", lambda patterns: False)
    monkeypatch.setattr(environment, "has_gpu_compiler", lambda: is_installed)
    environment.configure()
    assert os.environ.get("JAX_PLATFORMS") == platforms


def test_what_the_compiler_prints_is_discarded(monkeypatch, capfd):
    def find(platform):
        os.write(2, b"no driver")
        raise NotImplementedError(platform)

    monkeypatch.setattr(topologies, "get_topology_desc", find)
    environment.find_gpu_compiler()
    os.write(2, b"progress")
    assert capfd.readouterr().err == "progress"


@needs_libtpu
@pytest.mark.slow
@pytest.mark.full
@pytest.mark.parametrize("size, code", [(environment.STACK_BYTES, 0), (1 << 16, 1)])
def test_a_program_that_overflows_the_default_stack_compiles(monkeypatch, capsys, size, code):
    """One layer of BERT-base with 16 rows a chip and full rematerialization."""
    monkeypatch.setenv("LIBTPU_INIT_ARGS", f"--{environment.STACK}={size}")
    compiler.pool.cache_clear()  # its process has read the flags of an earlier test
    words = ["plan", "--config", "bert_base", "--phase", "short", "--topology", "v5e:2x2"]
    changes = {"model.layers": 1, "train.remat": "full", "phases.short.batch": 64}
    words += [f"--config.{key}={value}" for key, value in changes.items()]
    assert main([*words, "--config.compilation_cache="]) == code
    assert ("crashed" in capsys.readouterr().err) == bool(code)


@pytest.mark.parametrize(
    "installed, is_set", [("0.0.42", True), ("0.0.52", True), ("9.0.0", False)]
)
def test_the_flag_is_set_only_for_versions_that_have_it(monkeypatch, installed, is_set):
    monkeypatch.setattr(environment, "version", lambda name: installed)
    monkeypatch.delenv("TPU_LIBRARY_PATH", raising=False)
    monkeypatch.setenv("LIBTPU_INIT_ARGS", "--mine=1")
    environment.enlarge_stacks()
    flags = os.environ["LIBTPU_INIT_ARGS"]
    assert flags.startswith("--mine=1") and (environment.STACK in flags) == is_set


@pytest.mark.parametrize(
    "variables, command, expected",
    [
        ({}, "pretrain", environment.MALLOC if IS_GLIBC else None),
        ({}, "status", None),  # it computes nothing
        ({"GLIBC_TUNABLES": ""}, "pretrain", ""),
        ({"JAX_PLATFORMS": "cuda,cpu"}, "pretrain", None),
    ],
)
def test_a_command_that_computes_starts_again_with_the_settings(variables, command, expected):
    environment = {key: value for key, value in os.environ.items() if key != "GLIBC_TUNABLES"}
    arguments = [command, "--workdir", "with 'quotes' and  spaces"]
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *arguments],
        env={**environment, **variables},
        stdout=subprocess.PIPE,
        text=True,
    )
    printed, _ = process.communicate()
    assert json.loads(printed) == [process.pid, expected, arguments]
    assert process.returncode == 75


@pytest.mark.skipif(not IS_GLIBC, reason="settings of glibc")
@pytest.mark.parametrize("device, is_cpu", [("null", True), ("nvidia0", False), ("accel0", False)])
def test_env_exports_the_settings_only_on_cpus(tmp_path, monkeypatch, capsys, device, is_cpu):
    monkeypatch.setattr(chips, "DEVICES", tmp_path)
    (tmp_path / device).touch()
    for name in ("JAX_PLATFORMS", "GLIBC_TUNABLES"):
        monkeypatch.delenv(name, raising=False)
    assert main(["env"]) == 0
    printed = capsys.readouterr().out
    assert printed.count("GLIBC_TUNABLES=") == is_cpu
    program = "import os; print(os.environ.get('GLIBC_TUNABLES'))"
    script = f'{printed}exec {sys.executable} -c "{program}"'
    done = subprocess.run(["bash", "-c", script], env={}, capture_output=True, text=True)
    assert done.stdout.strip() == (environment.MALLOC if is_cpu else "None") and not done.stderr
