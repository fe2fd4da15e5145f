"""benchmarks/step.py: both sides train the same model on the same rows."""

import re
import subprocess
import sys

import pytest
from kits.places import ROOT

from benchmarks import step
from bert_jax.models import bert

TINY = {
    "model.layers": 2,
    "model.width": 32,
    "model.heads": 4,
    "tokenizer.size": 500,
    "compilation_cache": "",
    "phases.short.length": 32,
    "phases.short.predictions": 5,
}
KEYS = [f"--config.{key}={value}" for key, value in TINY.items()]
UNDROPPED = [f"--config.model.{key}=0.0" for key in ("dropout", "attention_dropout")]


@pytest.mark.full
def test_the_sides_are_the_same_model():
    settings = step.load("bert_tiny:4", [*KEYS, *UNDROPPED])
    ours, full, gathered = (step.make(side, settings) for side in step.SIDES)
    assert ours.parameters == full.parameters == gathered.parameters > 500 * 32
    assert ours.threads == full.threads == gathered.threads == step.cores()
    # Where nothing is dropped the head, gathered or not, has the same loss, and ours, of other first weights, about it.
    first = [side.step() for side in (ours, full, gathered)]
    assert first[1] == pytest.approx(first[2], rel=1e-6)
    assert first[0] == pytest.approx(first[1], rel=0.05)
    assert full.step() < first[1] and gathered.step() < first[2]


@pytest.mark.full
def test_the_gathered_side_does_the_work_of_the_formula():
    from torch.utils.flop_counter import FlopCounterMode

    settings = step.load("bert_tiny:4", KEYS)
    work = {}
    for side in step.SIDES[1:]:
        with FlopCounterMode(display=False) as counter:
            step.make(side, settings).step()
        work[side] = counter.get_total_flops()
    shape = settings.phases.short.length, settings.phases.short.predictions
    expected = 4 * bert.row_flops(settings.model, 500, *shape)
    assert work["gathered"] == pytest.approx(expected, rel=0.01)
    assert work["as it comes"] > 1.4 * work["gathered"]


@pytest.mark.slow
@pytest.mark.full
def test_a_row_from_outside():
    command = [sys.executable, "benchmarks/step.py", "--shapes", "bert_tiny:4", "--steps", "2"]
    command += [*KEYS, "--fused"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    (line,) = done.stdout.splitlines()
    found = re.fullmatch(
        r"\| step, tokens a second, 2/32 at 4 x 32 \(jax [\d.]+; torch \S+, transformers [\d.]+; .* 2 turns\)"
        r" \| - PyTorch as it comes, - with its head gathered"
        r" \| ([\d,]+): \*\*([\d.]+) x, ([\d.]+) x\*\* \| ([\d,]+) as it comes; ([\d,]+) gathered \|",
        line,
    )
    assert found, line
    assert all(float(number.replace(",", "")) > 0 for number in found.groups())


def test_the_numbers_of_a_row():
    settings = step.load("bert_base:8", [])
    facts = {side: dict(threads=2, versions="v") for side in step.SIDES}
    seconds = {"ours": [1.0, 2.0, 4.0], "as it comes": [2.0, 4.0, 9.0], "gathered": [1.5, 3, 6]}
    line = step.describe("bert_base:8", settings, facts, seconds)
    assert "| 1.5 x PyTorch as it comes, 1.2 x with its head gathered |" in line
    assert "| 512: **2.00 x, 1.50 x** | 256 as it comes; 341 gathered |" in line


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["--shapes", "bert_tiny"], "--shapes bert_tiny: expected CONFIG:ROWS"),
        (["--shapes", "demo:8"], "phases.short"),
        (["--shapes", "bert_tiny:4", "--row", "3"], "--row: unknown"),
        (["--shapes", "nothing:4"], "nothing"),
        (["--steps", "0"], "--steps: 0: expected a whole number from 1"),
    ],
)
def test_what_cannot_be_compared(arguments, words, capsys):
    assert step.main(arguments) == 2
    error = capsys.readouterr().err.strip()
    assert words in error and "\n" not in error


def test_without_pytorch(monkeypatch, capsys):
    monkeypatch.setattr(step.importlib.util, "find_spec", lambda name: name != "torch" or None)
    monkeypatch.setattr(step, "load", lambda *_: None)
    assert step.main([]) == 2
    error = capsys.readouterr().err.strip()
    assert error == "step.py: torch: not installed; pip install -e '.[parity]' brings it"
