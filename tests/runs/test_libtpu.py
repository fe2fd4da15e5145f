"""The stacks of the TPU compiler's threads are large enough."""

import pytest
from kits.slices import needs_libtpu

from bert_jax.cli import main
from bert_jax.planning import compiler
from bert_jax.runs import libtpu


@needs_libtpu
@pytest.mark.slow
@pytest.mark.full
@pytest.mark.parametrize("size, code", [(libtpu.STACK_BYTES, 0), (1 << 16, 1)])
def test_a_program_that_overflows_the_default_stack_compiles(monkeypatch, capsys, size, code):
    """One layer of BERT-base with 16 rows a chip and full rematerialization."""
    monkeypatch.setenv(libtpu.FLAGS, f"--{libtpu.STACK}={size}")
    compiler.pool.cache_clear()  # its process has read the flags of an earlier test
    words = ["plan", "--config", "bert_base", "--phase", "short", "--topology", "v5e:2x2"]
    changes = {"model.layers": 1, "train.remat": "full", "phases.short.batch": 64}
    words += [f"--config.{key}={value}" for key, value in changes.items()]
    assert main([*words, "--config.compilation_cache="]) == code
    assert ("crashed" in capsys.readouterr().err) == bool(code)


@pytest.mark.parametrize(
    "installed, is_set", [("0.0.42", True), ("0.0.52", True), ("0.0.41", False), ("9.0.0", False)]
)
def test_the_flag_is_set_only_for_versions_that_have_it(monkeypatch, installed, is_set):
    monkeypatch.setattr(libtpu, "version", lambda name: installed)
    monkeypatch.delenv("TPU_LIBRARY_PATH", raising=False)
    monkeypatch.setenv(libtpu.FLAGS, "--mine=1")
    libtpu.enlarge_stacks()
    flags = libtpu.os.environ[libtpu.FLAGS]
    assert flags.startswith("--mine=1") and (libtpu.STACK in flags) == is_set
