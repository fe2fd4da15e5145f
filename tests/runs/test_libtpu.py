"""The compiler of TPUs has stacks that are large enough."""

import pytest
from kits.slices import needs_libtpu

from bert_jax.cli import main
from bert_jax.runs import libtpu


@needs_libtpu
@pytest.mark.slow
@pytest.mark.full
@pytest.mark.parametrize("size, code", [(libtpu.STACK_BYTES, 0), (1 << 16, 1)])
def test_a_program_that_overflows_the_usual_stack_is_compiled(monkeypatch, capsys, size, code):
    """A layer of BERT-base, 16 rows a chip, whose attention is computed again."""
    monkeypatch.setenv(libtpu.FLAGS, f"--{libtpu.STACK}={size}")
    words = ["plan", "--config", "bert_base", "--phase", "short", "--topology", "v5e:2x2"]
    changes = {"model.layers": 1, "train.remat": "full", "phases.short.batch": 64}
    words += [f"--config.{key}={value}" for key, value in changes.items()]
    assert main([*words, "--config.compilation_cache="]) == code
    assert ("SIGSEGV" in capsys.readouterr().err) == bool(code)
