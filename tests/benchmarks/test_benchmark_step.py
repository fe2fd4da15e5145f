"""benchmarks/step.py: both sides train the same model on the same rows."""

import numpy as np
import pytest
from kits import small

from benchmarks import step

TINY = "model.width=32 model.heads=4 tokenizer.size=500 phases.short.length=32 phases.short.max_predictions=5 "
SHAPES = {"bert_tiny:4": "model.dropout=0.0 model.attention_dropout=0.0", "modern_small:4": ""}


@pytest.mark.full
@pytest.mark.parametrize("shape", SHAPES)
def test_all_sides_train_the_same_model(shape):
    settings = step.load(shape, [f"--config.{key}" for key in (TINY + SHAPES[shape]).split()])
    rows = step.rows_of(settings)
    ours, whole, gathered = (step.make(side, settings, rows) for side in step.SIDES)
    assert ours.parameters == whole.parameters == gathered.parameters > 500 * 32
    assert ours.threads == whole.threads == gathered.threads == step.cores()
    # Without dropout, both PyTorch sides have the same loss. Ours has other initial weights and about the same loss.
    first = [side.step() for side in (ours, whole, gathered)]
    assert first[1] == pytest.approx(first[2], rel=1e-6)
    assert first[0] == pytest.approx(first[1], rel=0.05)
    assert whole.step() < first[1] and gathered.step() < first[2]


def test_unpacked_rows_have_the_same_tokens_and_targets():
    rows = small.synthetic(4, 32, 5, 100, sequences=2)
    rows["sequence_ids"][:, 28:] = 0
    found, real = step.unpack(rows), rows["sequence_ids"] > 0
    assert found["mask"].sum(axis=1).tolist() == [16, 12] * 4
    for name, expected in {"tokens": rows["tokens"], "labels": step.labels_of(rows)}.items():
        np.testing.assert_array_equal(found[name][found["mask"] > 0], expected[real])
