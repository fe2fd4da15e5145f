"""XLA's flags for GPUs, and the silence of its compiler where there is none."""

import os
import sys

import pytest
from jax.experimental import topologies

from bert_jax.cli import main
from bert_jax.runs import cuda

FIRST, SECOND = cuda.FLAGS


@pytest.fixture(autouse=True)
def unset(monkeypatch):
    for name in (cuda.XLA_FLAGS, *cuda.SHARES, "JAX_PLATFORMS"):
        monkeypatch.delenv(name, raising=False)


def test_flags_of_the_user_are_kept(monkeypatch):
    monkeypatch.setenv(cuda.XLA_FLAGS, f"--{FIRST}=true --other=1")
    cuda.set_flags()
    assert os.environ[cuda.XLA_FLAGS] == f"--{FIRST}=true --other=1 --{SECOND}=false"
    assert not cuda.with_flags()


@pytest.mark.parametrize("release, is_set", [("0.10.2", True), ("0.13.0", False)])
def test_flags_are_set_only_for_versions_that_have_them(monkeypatch, release, is_set):
    """An unknown flag ends the process."""
    monkeypatch.setattr(cuda, "version", lambda name: release)
    assert bool(cuda.with_flags()) == is_set


@pytest.mark.parametrize("has_gpu", [False, True])
def test_flags_are_set_and_printed_where_there_is_a_gpu(monkeypatch, capsys, has_gpu):
    monkeypatch.setattr(cuda, "has_device", lambda patterns: has_gpu)
    monkeypatch.setattr(cuda, "is_installed", lambda: False)
    assert main(["env"]) == 0
    assert (f"{cuda.XLA_FLAGS}='--{FIRST}=" in capsys.readouterr().out) == has_gpu
    cuda.configure()
    assert (cuda.XLA_FLAGS in os.environ) == has_gpu
    assert os.environ.get(cuda.SHARES[0]) == ("0.9" if has_gpu else None)


@pytest.mark.parametrize("name", cuda.SHARES)
def test_a_share_of_the_memory_of_the_user_is_kept(monkeypatch, name):
    monkeypatch.setattr(cuda, "has_device", lambda patterns: True)
    monkeypatch.setenv(name, "0.5")
    assert not set(cuda.SHARES) & cuda.missing_variables().keys()
    assert cuda.memory_share() == 0.5


@pytest.mark.parametrize("is_installed, platforms", [(True, "cpu"), (False, None)])
def test_a_compiler_without_a_gpu_is_no_device(monkeypatch, is_installed, platforms):
    monkeypatch.setattr(cuda, "has_device", lambda patterns: False)
    monkeypatch.setattr(cuda, "is_installed", lambda: is_installed)
    cuda.configure()
    assert os.environ.get("JAX_PLATFORMS") == platforms


def test_what_the_compiler_prints_is_discarded(monkeypatch, capfd):
    def find(platform):
        os.write(2, b"no driver")
        raise NotImplementedError(platform)

    monkeypatch.setattr(topologies, "get_topology_desc", find)
    cuda.find_compiler()
    os.write(2, b"progress")
    assert capfd.readouterr().err == "progress"


def test_a_closed_standard_error_is_left_alone(monkeypatch):
    copies = []
    monkeypatch.setattr(sys, "stderr", None)
    monkeypatch.setattr(os, "dup", copies.append)
    cuda.find_compiler()
    assert not copies
