"""benchmarks/attention_kernels.py, with the CPU in place of an accelerator."""

import jax.numpy as jnp
import pytest

from benchmarks import attention_kernels
from bert_jax.layers import attention_xla
from bert_jax.layers.attention_spec import Spec

SMALL = dict(HEADS=2, SIZE=8, CASES=((16, 0.0, 1, 0), (128, 0.0, 1, 0), (16, 0.1, 2, 4)))


@pytest.fixture(autouse=True)
def small_inputs(monkeypatch):
    for name, value in SMALL.items():
        monkeypatch.setattr(attention_kernels, name, value)


def test_each_case_of_a_kernel_has_a_row(capsys):
    assert attention_kernels.main(["--tokens", "64"]) == 0
    rows = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| xla ")]
    cases = [["16", "1", "0", "0.0", "yes"], ["16", "2", "4", "0.1", "yes"]]
    assert [row.split(" | ")[1:6] for row in rows] == cases


def test_a_wrong_kernel_has_large_errors(monkeypatch):
    spec = Spec("xla", attention_kernels.SIZE, dropout=0.1, sequences=2)
    _, errors = attention_kernels.compare(spec, 4, 16, turns=1)
    assert 0 < max(errors) < 0.02
    exact = attention_xla.attend

    def wrong(spec, mask, q, *arguments):
        return exact(spec, mask, q, *arguments) * (1.1 if q.dtype == jnp.bfloat16 else 1)

    monkeypatch.setattr(attention_xla, "attend", wrong)
    _, errors = attention_kernels.compare(spec, 4, 16, turns=1)
    assert min(errors) > 0.05


def test_a_failed_kernel_does_not_end_the_others(monkeypatch, capsys):
    def fail(*arguments):
        raise ValueError("too large | for this device")

    monkeypatch.setattr(attention_xla, "attend", fail)
    assert attention_kernels.main(["--tokens", "64"]) == 0
    rows = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| xla ")]
    assert len(rows) == 2 and all("ValueError: too large / for" in row for row in rows)
