"""FLOPs of a training step, counted in its program: compared with the formulas of BERT and of a causal LM."""

import jax
import jax.numpy as jnp
import pytest
from kits.small import VOCABULARY, small_config

from bert_jax.data import batch
from bert_jax.layers import counts, embeddings
from bert_jax.objectives import base
from bert_jax.tasks.text import mlm_batch

ROWS = 4


def count(config, rows) -> float:
    objective = base.make(config, VOCABULARY)
    params = jax.eval_shape(objective.init, jax.random.key(0), rows)
    return base.step_flops(config, VOCABULARY, params, rows)


def network_flops(model, length: int) -> int:
    """Returns the FLOPs of the network's forward pass for a row: attention of all pairs of positions is counted."""
    width, hidden = model.width, model.feed_forward or 4 * model.width
    layer = (8 * width**2 + 4 * width * hidden) * length + 4 * length**2 * width
    return model.layers * layer


def vocabulary_flops(model, positions: int) -> int:
    return 2 * positions * (model.width**2 + model.width * embeddings.padded_size(VOCABULARY.size))


@pytest.mark.parametrize(
    ("length", "predictions", "sequences", "pairs", "changes"),
    [
        (32, 5, 1, "nsp", ()),
        (32, 5, 3, "sop", ("model.layers=3", "model.feed_forward=48")),
        (24, 7, 1, "none", ("model.width=48", "train.remat=full")),
        (16, 4, 2, "none", ("train.remat=attention",)),
    ],
)
def test_bert_has_the_flops_of_its_formula(length, predictions, sequences, pairs, changes):
    config = small_config(f"task.pair_task={pairs}", *changes)
    pair_head = 2 * sequences * (config.model.width**2 + 2 * config.model.width)
    row = network_flops(config.model, length) + vocabulary_flops(config.model, predictions)
    row += pair_head if pairs != "none" else 0
    assert count(config, mlm_batch.shapes(ROWS, length, predictions, sequences)) == 3 * ROWS * row


def test_a_causal_lm_has_vocabulary_logits_at_every_position():
    config = small_config("objective.name=causal_lm")
    row = network_flops(config.model, 32) + vocabulary_flops(config.model, 32)
    own = batch.structs({"next_weights": (ROWS, 32)})
    assert count(config, batch.shapes(ROWS, 32, 2) | own) == 3 * ROWS * row


def test_products_in_loops_branches_and_calls_are_counted():
    """A product of [2, 3] and [3, 5] has 60 FLOPs."""

    def loss(factors, flag):
        x, weights = factors

        def body(total, _):
            return total + jax.checkpoint(jnp.dot)(x, weights), None

        total = jax.lax.scan(body, jnp.zeros((2, 5)), None, length=4)[0]  # 4 products
        return total + jax.lax.cond(
            flag,
            lambda: x @ weights,
            lambda: x @ weights + jax.jit(jnp.dot)(x, weights),  # 2 products
        )

    arrays = [jax.ShapeDtypeStruct(size, jnp.float32) for size in ((2, 3), (3, 5))]
    program = jax.make_jaxpr(loss)(arrays, jax.ShapeDtypeStruct((), bool))
    assert counts.products(program.jaxpr, [True, True]) == 3 * 60 * (4 + 2)


@pytest.mark.parametrize(
    ("loss", "expected"),
    [
        (lambda params, x: x @ x, 1),
        (lambda params, x: x @ params, 2),
        (lambda params, x: params @ params, 3),
        (lambda params, x: jax.lax.stop_gradient(params) @ params, 2),
        (lambda params, x: jax.jit(jnp.dot)(x, 2 * params), 2),
        (lambda params, x: jax.checkpoint(jnp.dot)(x, params), 2),
        (lambda params, x: jax.lax.scan(lambda y, _: (y @ x, 0), params, None, 4)[0], 8),
        (lambda params, x: jax.lax.scan(lambda y, z: (y + z @ x, 0), params, x[None])[0], 1),
        (lambda params, x: jax.lax.scan(lambda y, _: (y @ params, 0), x, None, 4)[0], 12),
        (lambda params, x: jax.lax.cond(x[0, 0] > 0, jnp.dot, jnp.dot, x, params), 2),
    ],
)
def test_a_product_counts_once_more_for_each_trained_factor(loss, expected):
    """Both are [2, 2]: a product has 16 FLOPs."""
    array = jax.ShapeDtypeStruct((2, 2), jnp.float32)
    assert counts.products(jax.make_jaxpr(loss)(array, array).jaxpr, [True]) == 16 * expected
