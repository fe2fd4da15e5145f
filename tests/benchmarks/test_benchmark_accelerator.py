"""benchmarks/accelerator.py, with the CPU in place of an accelerator: attention kernels, runs."""

import jax.numpy as jnp
import pytest

from benchmarks import accelerator
from bert_jax.layers import attention_xla
from bert_jax.layers.attention_spec import Spec


@pytest.fixture(autouse=True)
def small_inputs(monkeypatch):
    for name, value in dict(ROWS=4, HEADS=2, SIZE=8, CASES=((16, 0.0, 1), (16, 0.1, 2))).items():
        monkeypatch.setattr(accelerator, name, value)


def test_each_case_of_a_kernel_has_a_row(capsys):
    arguments = ["--config", "bert_tiny", "--only", "kernels", "--in-process"]
    assert accelerator.main(arguments) == 0
    rows = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| xla ")]
    assert [row.split(" | ")[1:4] for row in rows] == [["16", "1", "0.0"], ["16", "2", "0.1"]]


def test_a_wrong_kernel_has_large_errors(monkeypatch):
    spec = Spec("xla", accelerator.SIZE, dropout=0.1, sequences=2)
    _, errors = accelerator.compare_kernel(spec, 16, turns=1)
    assert 0 < max(errors) < 0.02
    exact = attention_xla.attend

    def wrong(spec, mask, q, *arguments):
        return exact(spec, mask, q, *arguments) * (1.1 if q.dtype == jnp.bfloat16 else 1)

    monkeypatch.setattr(attention_xla, "attend", wrong)
    _, errors = accelerator.compare_kernel(spec, 16, turns=1)
    assert min(errors) > 0.05


@pytest.mark.full
def test_the_parts_that_train_run(capsys):
    phases = [f"--config.phases.{name}.batch=8" for name in ("short", "long")]
    parts = ["--only", "resume", "bfloat16"]
    arguments = ["--config", "bert_tiny", "--tokens", "128", "--steps", "100", *parts, *phases]
    assert accelerator.main(arguments) == 0
    page = capsys.readouterr().out
    assert ": 0 of " in page and "losses of the log equal" in page
