"""benchmarks/step.py: both sides train the same model on the same rows."""

import pytest

from benchmarks import step

TINY = {"model.layers": 2, "model.width": 32, "model.heads": 4, "tokenizer.size": 500}
TINY |= {"phases.short.length": 32, "phases.short.max_predictions": 5, "compilation_cache": ""}
KEYS = [f"--config.{key}={value}" for key, value in TINY.items()]
UNDROPPED = [f"--config.model.{key}=0.0" for key in ("dropout", "attention_dropout")]


@pytest.mark.full
def test_all_sides_train_the_same_model():
    settings = step.load("bert_tiny:4", [*KEYS, *UNDROPPED])
    ours, whole, gathered = (step.make(side, settings) for side in step.SIDES)
    assert ours.parameters == whole.parameters == gathered.parameters > 500 * 32
    assert ours.threads == whole.threads == gathered.threads == step.cores()
    # Without dropout, both PyTorch sides have the same loss. Ours has other initial weights and about the same loss.
    first = [side.step() for side in (ours, whole, gathered)]
    assert first[1] == pytest.approx(first[2], rel=1e-6)
    assert first[0] == pytest.approx(first[1], rel=0.05)
    assert whole.step() < first[1] and gathered.step() < first[2]
