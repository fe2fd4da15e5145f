"""The step: the same numbers on a mesh and for micro-batches, dropout on (more: test_parallel, test_micro_batches)."""

from functools import partial

import jax
import numpy as np
import pytest
from kits.small import VOCABULARY, small_batch, small_config

from bert_jax import evaluate, optimizer, step
from bert_jax.objectives import base
from bert_jax.parallel import mesh as meshes
from bert_jax.runs import metrics


def train(mesh_shape, micro_batches=1, steps=5, rows=16, **kwargs):
    """(losses, state) after some steps on a mesh of the first devices."""
    names = ("data", "fsdp", "tensor")
    keys = [f"mesh.{name}={size}" for name, size in zip(names, mesh_shape, strict=True)]
    config = small_config(*keys, *kwargs.pop("overrides", ()))
    mesh = meshes.make_mesh(config.mesh, jax.devices()[: int(np.prod(mesh_shape))])
    objective = base.make(config, VOCABULARY)
    rate = optimizer.schedule("linear", 1e-2, 2, 20)
    update = optimizer.make(config.optimizer, rate)
    initialize = partial(step.init, objective, update, 3, small_batch(rows))
    places = meshes.state(jax.eval_shape(initialize), mesh)
    function = partial(
        step.train, objective=objective, optimizer=update, seed=3, micro_batches=micro_batches
    )
    losses = []
    with jax.set_mesh(mesh):
        state = jax.jit(initialize, out_shardings=places)()
        everywhere = meshes.replicated(mesh)
        function = jax.jit(function, out_shardings=(places, everywhere, everywhere))
        for number in range(steps):
            batch = small_batch(rows, seed=number)
            placed = meshes.to_devices(mesh, batch, np.arange(rows), rows)
            state, values, _ = function(state, placed)
            losses.append(metrics.means(values)["loss"])
    return losses, state


@pytest.fixture(scope="module")
def single():
    return train((1, 1, 1))


@pytest.mark.parametrize("shape", [(8, 1, 1), (2, 2, 2)])
def test_a_mesh_trains_to_the_same_loss(single, shape):
    losses, _ = train(shape)
    np.testing.assert_allclose(losses, single[0], rtol=1e-5)
    assert len(set(np.round(losses, 3))) == 5  # and it does train


@pytest.mark.parametrize("shape, count", [((1, 1, 1), 4), ((2, 2, 1), 4)])
def test_micro_batches_equal_the_large_batch(single, shape, count):
    weights = small_batch()["masked_weights"].sum(1)
    assert len(set(weights)) > 1  # a mean of means would differ
    losses, _ = train(shape, micro_batches=count)
    np.testing.assert_allclose(losses, single[0], rtol=1e-5)


def test_dropout_is_another_one_in_every_step():
    objective, batch = base.make(small_config(), VOCABULARY), small_batch()
    update = optimizer.make(small_config().optimizer, lambda step: 0.0)
    state = step.init(objective, update, 3, batch)
    function = partial(step.train, objective=objective, optimizer=update, micro_batches=1)
    function = jax.jit(function, static_argnames="seed")

    def loss(number, seed=3):
        return float(
            function(state._replace(step=np.int32(number)), batch, seed=seed)[1]["loss"][0]
        )

    assert loss(5) == loss(5)
    assert len({loss(5), loss(6), loss(5, seed=4)}) == 3


def test_dropout_is_on(single):
    off, _ = train((1, 1, 1), overrides=("model.dropout=0", "model.attention_dropout=0"))
    assert abs(off[0] - single[0][0]) > 1e-4


def test_parameters_and_optimizer_state_are_split():
    _, state = train((2, 2, 2), steps=1)
    query = ("encoder", "blocks_0", "attention", "query", "kernel")
    words = ("encoder", "embedder", "words")

    def shard(tree, path):
        for name in path:
            tree = tree[name]
        return tree.addressable_shards[0].data.shape

    moments = next(part for part in state.opt_state.inner if hasattr(part, "mu"))
    for tree in (state.params, moments.mu, moments.nu):
        assert shard(tree, query) == (16, 16)
        assert shard(tree, words) == (64, 32)


@pytest.mark.parametrize("gradient_dtype", ["float32", "bfloat16"])
def test_bfloat16_trains(gradient_dtype):
    overrides = ("dtype=bfloat16", f"gradient_dtype={gradient_dtype}")
    losses, state = train((2, 2, 2), overrides=overrides)
    exact, _ = train((1, 1, 1))
    np.testing.assert_allclose(losses, exact, rtol=2e-2)
    assert {leaf.dtype for leaf in jax.tree.leaves(state.params)} == {np.dtype("float32")}


@pytest.mark.parametrize("pairs", ["nsp", "sop", "none"])
def test_terms_are_means_of_their_own(pairs):
    objective = base.make(small_config(f"objective.pairs={pairs}"), VOCABULARY)
    batch = small_batch()
    params = jax.jit(objective.init)(jax.random.key(0), batch)
    totals = objective.weights(batch)
    assert set(totals) == {"mlm"} | ({pairs} - {"none"})
    loss, values = objective.loss(params, batch, totals, 0, train=False)
    means = metrics.means(values)
    expected = sum(means[f"{term}_loss"] for term in totals)
    assert float(loss) == pytest.approx(expected, rel=1e-5)
    assert values["mlm_loss"][1] == batch["masked_weights"].sum()


def test_the_loss_over_batches_is_that_of_one_large_batch():
    objective = base.make(small_config(), VOCABULARY)
    batch = small_batch(16)
    params = jax.jit(objective.init)(jax.random.key(0), batch)
    function = jax.jit(partial(step.evaluate, objective=objective))
    whole = evaluate.over(function, params, [batch])
    # Parts with different numbers of masked positions: a mean of means would differ.
    parts = [
        {name: array[rows] for name, array in batch.items()} for rows in (slice(10), slice(10, 16))
    ]
    assert evaluate.over(function, params, parts) == pytest.approx(whole, rel=1e-5)
    # Told to stop after the first part, it does not wait for the second.
    assert evaluate.over(function, params, iter([parts[0], None]), lambda: True) is None
