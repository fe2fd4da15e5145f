"""What the backward pass computes again: the same loss and gradients, and less memory."""

import math
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from kits.small import small_batch, small_objective, small_params

from bert_jax import prng

KINDS = ("none", "attention", "full")
KEY = prng.key(3)


def loss_of(remat, rows):
    """(params, their loss with dropout on)."""
    made = small_objective(f"train.remat={remat}")

    def loss(params):
        return made.loss(params, rows, made.weights(rows), jnp.uint32(KEY), train=True)[0]

    return small_params(made), loss


@cache
def loss_and_gradient(remat):
    params, loss = loss_of(remat, small_batch())
    return jax.jit(jax.value_and_grad(loss))(params)


@pytest.mark.slow
@pytest.mark.parametrize("remat", [pytest.param("attention", marks=pytest.mark.full), "full"])
def test_loss_and_gradients_stay_the_same(remat):
    (loss, gradient), (expected_loss, expected) = map(loss_and_gradient, (remat, "none"))
    assert float(loss) == pytest.approx(float(expected_loss), rel=1e-6)
    scale = max(float(abs(leaf).max()) for leaf in jax.tree.leaves(expected))
    # Trees of another shape or with other names would not map.
    differences = jax.tree.map(lambda a, b: float(abs(a - b).max()) / scale, gradient, expected)
    print(remat, f"{max(jax.tree.leaves(differences)):.1e}")
    assert max(jax.tree.leaves(differences)) < 1e-6


def saved_bytes(remat) -> int:
    """Of what the forward pass leaves for the backward pass, parameters and batch included."""
    rows = {name: jnp.asarray(array) for name, array in small_batch(8).items()}
    params, loss = loss_of(remat, rows)
    leaves = jax.tree.leaves(jax.eval_shape(lambda params: jax.vjp(loss, params)[1], params))
    return sum(math.prod(leaf.shape) * np.dtype(leaf.dtype).itemsize for leaf in leaves)


@pytest.mark.slow
def test_less_is_kept_for_the_backward_pass():
    """Counted before the CPU's compiler, which undoes it, so that its memory shows nothing."""
    none, attention, full = map(saved_bytes, KINDS)
    probabilities = 2 * 8 * 4 * 32 * 32 * 4  # of two layers, 8 rows, 4 heads and 32 x 32 pairs
    assert none - attention > probabilities
    # Vectors go into two blocks; a dozen more arrays of this size or larger are kept.
    vectors = 2 * 8 * 32 * 32 * 4
    assert attention - full > 12 * vectors
