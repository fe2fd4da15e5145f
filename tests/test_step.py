"""The step: keys of dropout, bfloat16, and losses with a mean for each term."""

from functools import partial

import jax
import numpy as np
import pytest
from kits.small import VOCABULARY, small_batch, small_config, small_objective, small_params

from bert_jax import build, evaluate, optimizer, step
from bert_jax.parallel import mesh as meshes
from bert_jax.runs import metrics


@pytest.mark.slow
def test_dropout_follows_seed_step_and_row():
    """Dropout differs if and only if the seed, the step or the row does."""
    objective = small_objective("model.layers=1")
    batch = small_batch()
    update = optimizer.make(small_config(), lambda step: 0.0, None)
    state = jax.jit(partial(step.init, objective, update, 3))(batch)
    function = partial(step.train, objective=objective, optimizer=update)
    function = jax.jit(function, static_argnames="seed")

    def loss(number, seed=3, first_row=0):
        rows = batch | {"rows": batch["rows"] + np.int32(first_row)}
        _, values, _ = function(state._replace(step=np.int32(number)), rows, seed=seed)
        return float(values["loss"][0])

    assert loss(5) == loss(5)
    assert len({loss(5), loss(6), loss(5, seed=4), loss(5, first_row=16)}) == 4


@pytest.mark.full
def test_losses_in_bfloat16_are_close_to_float32():
    """Losses are close to float32's, with all in bfloat16, and with only the sums of gradients in bfloat16."""

    def run(*overrides):
        config = small_config("model.layers=1", *overrides)
        mesh = meshes.make_mesh(config)
        trainer = build.build(config, mesh, VOCABULARY)
        state = trainer.initialize()
        losses = []
        for number in range(5):
            rows = meshes.to_devices(mesh, small_batch(seed=number), np.arange(16), 16)
            state, values, _ = trainer.train["main"](state, rows)
            losses.append(metrics.means(values)["loss"])
        assert {leaf.dtype for leaf in jax.tree.leaves(state.params)} == {np.dtype("float32")}
        return losses

    exact = run()
    sums = run("gradient_dtype=bfloat16")
    half = run("dtype=bfloat16", "mesh.fsdp=2", "mesh.tensor=2")
    assert exact != sums
    np.testing.assert_allclose([half, sums], [exact, exact], rtol=2e-2)


@pytest.mark.parametrize("pairs", ["nsp", "sop", "none"])
def test_each_loss_term_is_a_separate_mean(pairs):
    objective = small_objective(f"task.pair_task={pairs}")
    batch = small_batch()
    totals = objective.weights(batch)
    assert set(totals) == {"mlm"} | ({pairs} - {"none"})
    compute = jax.jit(objective.loss, static_argnames="train")
    loss, values = compute(small_params(objective), batch, totals, 0, train=False)
    means = metrics.means(values)
    assert float(loss) == pytest.approx(sum(means[f"{term}_loss"] for term in totals), rel=1e-5)
    assert values["mlm_loss"][1] == batch["masked_weights"].sum()


class Batches(list):
    """Batches of a task without scores."""

    score = None
    review = None


@pytest.mark.slow
def test_the_loss_over_batches_equals_that_of_one_large_batch():
    objective = small_objective()
    batch = small_batch(16)
    params = small_params(objective)
    function = jax.jit(partial(step.evaluate, objective=objective))
    measure = partial(evaluate.measure, function, params)
    whole = measure(Batches([batch])).values
    # Parts with different numbers of masked positions: a mean of means would differ.
    cuts = slice(10), slice(10, 16)
    parts = [{name: array[rows] for name, array in batch.items()} for rows in cuts]
    assert measure(Batches(parts)).values == pytest.approx(whole, rel=1e-5)
    # Told to stop after the first part, it does not wait for the second.
    assert measure(Batches([parts[0], None]), lambda: True) is None
