"""benchmarks/step.py: both sides train the same model on the same rows."""

import jax
import pytest

from benchmarks import step
from bert_jax.objectives import base, mlm_batch
from bert_jax.tokenizers.special_tokens import Vocabulary

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


@pytest.mark.full
def test_the_gathered_side_has_the_flops_of_the_formula():
    from torch.utils.flop_counter import FlopCounterMode

    settings = step.load("bert_tiny:4", KEYS)
    work = {}
    for side in step.SIDES[1:]:
        with FlopCounterMode(display=False) as counter:
            step.make(side, settings).step()
        work[side] = counter.get_total_flops()
    shape = settings.phases.short.length, settings.phases.short.max_predictions
    vocabulary = Vocabulary(500, 0, 1, 2, 3, 4)
    initialize, rows = base.make(settings, vocabulary).init, mlm_batch.shapes(1, *shape)
    params = jax.eval_shape(initialize, jax.random.key(0), rows)
    expected = base.step_flops(settings, vocabulary, params, mlm_batch.shapes(4, *shape))
    assert work["gathered"] == pytest.approx(expected, rel=0.01)
    assert work["as it comes"] > 1.4 * work["gathered"]
