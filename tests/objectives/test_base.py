"""The fields of an objective, and the keys of what it samples."""

import numpy as np
import pytest
from flax import linen as nn
from kits.small import VOCABULARY, small_batch, small_config, small_objective

from bert_jax import config as configs
from bert_jax import evaluate, step
from bert_jax.errors import BadInput
from bert_jax.layers.dense import MASKED
from bert_jax.objectives import base
from bert_jax.parallel import mesh as meshes
from bert_jax.planning import plan


def test_an_objective_may_have_reference_losses():
    for pair_task, is_paired in (("sop", True), ("none", False)):
        losses = small_objective(f"task.pair_task={pair_task}").reference_losses(5.0)
        assert "5.3" in losses and "5.00" in losses
        assert ("pair loss 0.69" in losses) == is_paired
    assert base.Objective(None, None, None, None).reference_losses(5.0) == ""


def test_the_rows_of_a_task_decide_whether_there_are_pairs():
    """A change of the task needs no key of the objective."""
    for name, terms in (("sentence_pairs", {"mlm", "nsp"}), ("full_sentences", {"mlm"})):
        objective = small_objective(f"task.name={name}")
        assert set(objective.weights(small_batch())) == terms


def test_arrays_that_the_task_does_not_make_are_named():
    with pytest.raises(BadInput, match="next_weights"):
        plan.expected_counts(small_config("objective.name=causal_lm"), print)


class Sampler(nn.Module):
    """Outputs what an objective draws for each row, and the keys of its dropout."""

    def __call__(self, batch, keys):
        return {"draws": batch["draw_keys"], "dropout": keys}


def sampler() -> base.Objective:
    def terms(outputs, batch):
        return {"draw_loss": (outputs["draws"], batch["draw_keys"]), "dropout": outputs["dropout"]}

    return base.from_module(Sampler(), lambda batch: {"draw": 1.0}, terms)


def draws_of(rows, key: int, train: bool):
    _, metrics = sampler().loss({}, {"rows": np.array(rows)}, {"draw": 1.0}, key, train=train)
    return metrics


def test_draws_follow_key_and_row_alone():
    """In training and in evaluations; keys of dropout are others, and exist in training alone."""
    draws, of_terms = draws_of([0, 1, 2], 3, True)["draw_loss"]
    np.testing.assert_array_equal(draws, of_terms)
    np.testing.assert_array_equal(draws[2::-2], draws_of([2, 0], 3, False)["draw_loss"][0])
    others = [draws_of([0, 1, 2], 4, True)["draw_loss"][0], draws_of([0, 1, 2], 3, True)["dropout"]]
    assert len(set(np.concatenate([draws, *others]).tolist())) == 9
    assert draws_of([0], 3, False)["dropout"] is None


def test_draws_of_an_evaluation_do_not_depend_on_the_size_of_its_batches():
    """Losses and outputs have the same."""

    class Feed:
        vocabulary = VOCABULARY
        score = None

        def evaluation(self, phase, split, batch, positions):
            rows = np.array(positions, np.int32)
            return [{"tokens": np.zeros((batch, 1), np.int32), "rows": rows}] * (32 // batch)

    draws = []
    for size in (8, 16):
        config = small_config(f"evaluate.batch={size}")
        mesh = meshes.make_mesh(config)
        batches = evaluate.Batches(Feed(), config, configs.phases(config)[0], "heldout", mesh)
        for batch in batches:
            _, terms, outputs = step.evaluate({}, batch, objective=sampler(), with_outputs=True)
            np.testing.assert_array_equal(np.float32(outputs["draws"]), terms["draw"][0])
            draws += outputs["draws"].tolist()
    assert draws[:32] == draws[32:] and len(set(draws)) == 32


def test_smoothing_leaves_out_the_padding_of_the_vocabulary():
    logits = np.random.default_rng(0).normal(size=(4, 10)).astype(np.float32)
    padded = np.pad(logits, [(0, 0), (0, 6)], constant_values=MASKED)
    targets = np.arange(4)
    expected = base.cross_entropy(logits, targets, 0.1)
    np.testing.assert_allclose(base.cross_entropy(padded, targets, 0.1, 10), expected, rtol=1e-6)
