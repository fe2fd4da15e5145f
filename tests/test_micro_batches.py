"""Micro-batches: the gradient of the whole batch with dropout on, one sum over devices a step, how many there are."""

from contextlib import nullcontext
from functools import cache
from types import SimpleNamespace

import jax
import numpy as np
import optax
import pytest
from kits.slices import compiling, devices, needs_libtpu
from kits.small import VOCABULARY, small_batch, small_config

from bert_jax import build
from bert_jax.parallel import mesh as meshes
from bert_jax.planning import timeline

ROWS = 64


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


def built(shape, count, pairs="nsp", places=None):
    """The trainer for `count` micro-batches on a mesh of this shape; Adam's first moment is the gradient itself."""
    config = small_config(
        *[f"mesh.{name}={size}" for name, size in zip(meshes.AXES, shape, strict=True)],
        *(
            f"phases.main.batch={ROWS}",
            f"train.micro_batches={count}",
            f"objective.pair_task={pairs}",
        ),
        *("model.layers=1", "optimizer.beta1=0", "optimizer.clip=0"),
    )
    mesh = meshes.make_mesh(config.mesh, places or jax.devices()[: int(np.prod(shape))])
    return build.build(config, mesh, VOCABULARY)


@cache
def gradient(shape, count, pairs):
    made = built(shape, count, pairs)
    rows = meshes.to_devices(made.mesh, uneven_batch(), np.arange(ROWS), ROWS)
    state, *_ = made.train["main"](made.initialize(), rows)
    (moment,) = [part.mu for part in state.opt_state.inner if hasattr(part, "mu")]
    return jax.device_get(moment)


def distance(a, b) -> float:
    """The largest over leaves of the norm of the difference by the norm of the leaf.

    The gradient of key biases is zero, since softmax does not see them: less than 1e-5 of all is rounding.
    """
    least = 1e-5 * optax.tree.norm(b)

    def leaf(x, y):
        return np.linalg.norm(x - y) / max(np.linalg.norm(y), least)

    return float(max(jax.tree.leaves(jax.tree.map(leaf, a, b))))


@pytest.mark.slow
@pytest.mark.parametrize(
    "shape, count, pairs",
    [
        ((8, 1, 1), 8, "nsp"),
        ((2, 2, 2), 4, "nsp"),
        pytest.param((1, 1, 1), 4, "nsp", marks=pytest.mark.full),
        pytest.param((8, 1, 1), 1, "nsp", marks=pytest.mark.full),
        pytest.param((8, 1, 1), 2, "sop", marks=pytest.mark.full),
        pytest.param((8, 1, 1), 4, "none", marks=pytest.mark.full),
    ],
)
def test_the_gradient_is_the_large_batchs(shape, count, pairs):
    """Of one large batch on one device."""
    assert distance(gradient(shape, count, pairs), gradient((1, 1, 1), 1, pairs)) < 1e-5


ON_TPU = pytest.param("tpu", marks=[needs_libtpu, pytest.mark.full])


@pytest.mark.slow
@pytest.mark.parametrize("platform", ["cpu", ON_TPU])
def test_gradients_are_added_up_over_devices_once_a_step(platform, monkeypatch):
    """Not in every micro-batch, as the compiler does by itself, and not twice for the word table."""
    places = None if platform == "cpu" else devices("v5e:2x4")

    def sent():
        with compiling() if places else nullcontext():
            made = built((8, 1, 1), 4, places=places)
        found = timeline.sent(timeline.read(made.train["main"].as_text(), made.mesh))
        assert {kind for kind, _ in found} == {"all-reduce"}
        size = sum(leaf.size for leaf in jax.tree.leaves(made.shapes.params))
        return sum(found.values()) / (2 * 7 / 8 * 4 * size)  # around a ring of eight

    assert sent() == pytest.approx(1, rel=1e-3)
    monkeypatch.setattr(meshes, "summed", lambda mesh, dtype: None)
    assert sent() > 2


@pytest.mark.parametrize(
    "devices, batch, rows_per_device, expected",
    [(n, 256, 16, count) for n, count in ((1, 16), (4, 4), (8, 2), (16, 1), (64, 1))]
    # Where it does not divide, the most rows that do: 30 rows a device in parts of 6, not 8.
    + [(8, 240, 8, 5), (8, 8 * 7, 4, 7), (8, 256, 0, 1)],
)
def test_micro_batches_follow_from_the_rows_of_a_chip(devices, batch, rows_per_device, expected):
    mesh = SimpleNamespace(shape={"data": devices, "fsdp": 1})
    train = SimpleNamespace(rows_per_device=rows_per_device, micro_batches=1)
    assert meshes.micro_batches(mesh, batch, train) == expected
