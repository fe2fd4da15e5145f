"""What every objective has to be: a loss that is a sum over rows."""

import jax
import jax.numpy as jnp
import numpy as np


def assert_halves_add_up(objective, params, batch: dict, tolerance: float = 1e-5) -> None:
    """Asserts that loss, metrics, and gradients of two halves of a batch add up to those of all its rows, in training
    and in evaluations. Otherwise they would depend on the number of devices and of micro-batches.

    tolerance: of differences, as a share of a metric, and of the largest gradient of all.
    """
    size = len(batch["rows"]) // 2
    totals = objective.weights(batch)
    differentiate = jax.value_and_grad(objective.loss, has_aux=True)
    compute = jax.jit(differentiate, static_argnames="train")

    def sums(rows, train: bool):
        arrays = {name: array[rows] for name, array in batch.items()}
        return compute(params, arrays, totals, jnp.uint32(3), train=train)

    for train in (True, False):
        values, gradients = sums(slice(None), train)
        halves = sums(slice(size), train), sums(slice(size, None), train)
        added_values, added_gradients = jax.tree.map(jnp.add, *halves)
        largest = max(np.abs(leaf).max() for leaf in jax.tree.leaves(gradients))
        compare(added_values, values, tolerance, 0)
        compare(added_gradients, gradients, 0, tolerance * largest)


def compare(actual, expected, relative: float, absolute: float) -> None:
    """Asserts that two trees have nearly the same numbers; a failure names the leaf."""
    pairs = zip(*map(jax.tree.leaves_with_path, (actual, expected)), strict=True)
    for (path, left), (_, right) in pairs:
        name = jax.tree_util.keystr(path)
        np.testing.assert_allclose(left, right, relative, absolute, err_msg=name)
