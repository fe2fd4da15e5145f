"""Rematerialization: the same loss and gradients with less memory."""

import math
from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from kits.small import loss_of, small_batch, small_objective, small_params

POLICIES = ("none", "attention", "full")


@cache
def loss_and_gradient(remat):
    objective = small_objective(f"train.remat={remat}")
    function = jax.jit(jax.value_and_grad(loss_of(objective)))
    return function(small_params(objective), small_batch())


@pytest.mark.full
@pytest.mark.parametrize("remat", ["attention", "full"])
def test_loss_and_gradients_stay_the_same(remat):
    (loss, gradient), (expected_loss, expected) = map(loss_and_gradient, (remat, "none"))
    assert float(loss) == pytest.approx(float(expected_loss), rel=1e-6)
    scale = max(float(abs(leaf).max()) for leaf in jax.tree.leaves(expected))
    # This raises if the trees have different names.
    differences = jax.tree.map(lambda a, b: float(abs(a - b).max()) / scale, gradient, expected)
    print(remat, f"{max(jax.tree.leaves(differences)):.1e}")
    assert max(jax.tree.leaves(differences)) < 1e-6


def saved_bytes(remat) -> int:
    """Returns the bytes that the forward pass saves for the backward pass, with parameters and batch."""
    rows = {name: jnp.asarray(array) for name, array in small_batch(8).items()}
    objective = small_objective(f"train.remat={remat}")
    loss, params = partial(loss_of(objective), rows=rows), small_params(objective)
    leaves = jax.tree.leaves(jax.eval_shape(lambda params: jax.vjp(loss, params)[1], params))
    return sum(math.prod(leaf.shape) * np.dtype(leaf.dtype).itemsize for leaf in leaves)


@pytest.mark.slow
def test_less_is_saved_for_the_backward_pass():
    """Counted before compilation: XLA's CPU backend undoes rematerialization, so its memory shows no difference."""
    none, attention, full = map(saved_bytes, POLICIES)
    probabilities = 2 * 8 * 4 * 32 * 32 * 4  # of two layers, 8 rows, 4 heads and 32 x 32 pairs
    assert none - attention > probabilities
    # Hidden states go into both blocks; without remat a dozen more arrays of at least this size are saved.
    vectors = 2 * 8 * 32 * 32 * 4
    assert attention - full > 12 * vectors
