"""Micro-batches: the gradient of the whole batch with dropout on, one sum over devices a step, how many there are."""

from functools import cache, partial
from types import SimpleNamespace

import jax
import numpy as np
import optax
import pytest
from kits.slices import compiling, devices, needs_libtpu
from kits.small import VOCABULARY, small_batch, small_config

from bert_jax import optimizer, step
from bert_jax.objectives import base
from bert_jax.parallel import mesh as meshes
from bert_jax.planning import hlo

pytestmark = pytest.mark.slow  # each compiles programs for eight devices

ROWS = 64
# In `places` the gradient itself stands where Adam would have its first moment.
KEEP_GRADIENT = optax.with_extra_args_support(optax.trace(decay=0.0))


def uneven_batch() -> dict:
    """One row with all predictions beside rows with none, and whole runs of rows that weigh nothing."""
    arrays = small_batch(ROWS)
    draw = np.random.default_rng(7)
    weights = arrays["masked_weights"]
    weights[draw.random(ROWS) < 0.4] = 0
    weights[1::8, 1:] = 0
    weights[2], weights[24:32] = 1, 0
    arrays["pair_weights"] = (draw.random((ROWS, 1)) < 0.6).astype(np.float32)
    arrays["pair_weights"][24:32] = 0
    assert {0.0, 1.0, 5.0} <= set(weights.sum(1))
    return arrays


def compiled(shape, count, pairs="nsp", update=KEEP_GRADIENT, places=None, summed=meshes.summed):
    """(initialize, the compiled step, mesh) for `count` micro-batches on a mesh of this shape."""
    config = small_config(
        f"objective.pairs={pairs}",
        "model.layers=1",
        *[f"mesh.{name}={size}" for name, size in zip(meshes.AXES, shape, strict=True)],
    )
    places = places or jax.devices()[: int(np.prod(shape))]
    mesh = meshes.make_mesh(config.mesh, places)
    objective = base.make(config, VOCABULARY)
    initialize = partial(step.init, objective, update, 3, small_batch())
    shapes = jax.eval_shape(initialize)
    places = meshes.state(shapes, mesh)
    function = partial(
        step.train,
        objective=objective,
        optimizer=update,
        seed=3,
        micro_batches=count,
        summed=summed(mesh, config.gradient_dtype),
    )
    rows = jax.eval_shape(lambda: small_batch(ROWS))
    rows = meshes.placed(rows, {name: meshes.rows(mesh) for name in rows})
    with jax.set_mesh(mesh):
        everywhere = meshes.replicated(mesh)
        function = jax.jit(function, out_shardings=(places, everywhere, everywhere))
        function = function.lower(meshes.placed(shapes, places), rows).compile()
    return jax.jit(initialize, out_shardings=places), function, mesh


def after_one_step(shape, count, pairs, update=KEEP_GRADIENT):
    initialize, function, mesh = compiled(shape, count, pairs, update)
    rows = meshes.to_devices(mesh, uneven_batch(), np.arange(ROWS), ROWS)
    state, *_ = function(initialize(), rows)
    return jax.device_get(state)


def distance(a, b) -> float:
    """The largest over leaves of the norm of the difference by the norm of the leaf.

    The gradient of key biases is zero, since softmax does not see them: less than 1e-5 of all is rounding.
    """
    least = 1e-5 * optax.tree.norm(b)

    def leaf(x, y):
        return np.linalg.norm(x - y) / max(np.linalg.norm(y), least)

    return float(max(jax.tree.leaves(jax.tree.map(leaf, a, b))))


@cache
def whole(pairs: str):
    """The gradient of one large batch on one device."""
    return after_one_step((1, 1, 1), 1, pairs).opt_state.inner


CASES = [((1, 1, 1), n, "nsp") for n in (2, 4, 8)] + [((8, 1, 1), n, "nsp") for n in (1, 8)]
CASES += [((2, 2, 2), 4, "nsp"), ((8, 1, 1), 2, "sop"), ((8, 1, 1), 4, "none")]


@pytest.mark.parametrize("shape, count, pairs", CASES)
def test_the_gradient_is_the_large_batchs(shape, count, pairs):
    found = distance(after_one_step(shape, count, pairs).opt_state.inner, whole(pairs))
    print(shape, count, pairs, f"{found:.1e}")
    assert found < 1e-5


@pytest.mark.parametrize("shape", [(1, 1, 1), (8, 1, 1)])
def test_the_update_is_the_large_batchs(shape):
    update = optimizer.make(small_config().optimizer, lambda step: 1e-3)
    expected, found = (
        after_one_step(*case, "nsp", update).params for case in (((1, 1, 1), 1), (shape, 8))
    )
    start = compiled((1, 1, 1), 1, "nsp", update)[0]().params
    difference, change = (
        optax.tree.norm(jax.tree.map(np.subtract, other, expected)) for other in (found, start)
    )
    relative = float(difference / change)
    print(shape, f"{relative:.1e}")
    assert 0 < relative < 1e-5


@pytest.mark.parametrize("platform", ["cpu", pytest.param("tpu", marks=needs_libtpu)])
def test_gradients_are_added_up_over_devices_once_a_step(platform):
    """Not in every micro-batch, as the compiler does by itself, and not twice for the word table."""
    places = None if platform == "cpu" else devices("v5e:2x4")

    def sent(**kwargs):
        with compiling():
            initialize, function, mesh = compiled((8, 1, 1), 4, places=places, **kwargs)
        parameters = jax.tree.leaves(jax.eval_shape(initialize).params)
        found = hlo.collectives(function.as_text(), mesh)
        assert {c.kind for c in found} == {"all-reduce"}
        return sum(c.bytes * c.times for c in found) / (4 * sum(p.size for p in parameters))

    assert sent() == pytest.approx(1, rel=1e-3)
    assert sent(summed=lambda mesh, dtype: None) > 2


def micro_batches(devices: int, batch: int, rows_per_chip: int) -> int:
    mesh = SimpleNamespace(shape={"data": devices, "fsdp": 1})
    train = SimpleNamespace(rows_per_chip=rows_per_chip, micro_batches=1)
    return meshes.micro_batches(mesh, batch, train)


def test_micro_batches_follow_from_the_rows_of_a_chip():
    # The same command on slices of 1 to 64 devices.
    assert [micro_batches(n, 256, 16) for n in (1, 4, 8, 16, 64)] == [16, 4, 2, 1, 1]
    # Where it does not divide, the most rows that do: 30 rows a device in parts of 6, not 8.
    assert micro_batches(8, 240, 8) == 5
    assert micro_batches(8, 8 * 7, 4) == 7
    assert micro_batches(8, 256, 0) == 1
