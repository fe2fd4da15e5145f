"""Micro-batches: the gradient equals the whole batch's, with dropout; one sum over devices per step; their number."""

from contextlib import nullcontext
from functools import cache
from types import SimpleNamespace

import jax
import numpy as np
import pytest
from kits import pairs_of_texts
from kits.slices import compiling, devices, needs_libtpu
from kits.small import VOCABULARY, mesh_keys, small_batch, small_config

from bert_jax import build
from bert_jax import config as configs
from bert_jax.parallel import mesh as meshes
from bert_jax.planning import timeline
from bert_jax.tasks import base as tasks

ROWS = 64
KEYS = {kind: (f"task.pair_task={kind}",) for kind in ("nsp", "sop", "none")}
KEYS["translation"] = (
    "model.name=transformer",
    "model.decoder_layers=1",
    "objective.name=translation",
    "task.name=translation",
    "task.max_pieces=30",
)


def uneven_batch() -> dict:
    """Returns a batch with all, some or no predictions per row, and consecutive rows of weight 0."""
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


def uneven_pairs() -> dict:
    """Returns a batch of pairs of texts: some rows have fewer or no targets, and consecutive ones have weight 0."""
    config = configured("translation")
    shapes = tasks.make(config).shapes(configs.phases(config)[0], ROWS)
    arrays = pairs_of_texts.draw_batch(shapes, VOCABULARY.size, seed=0)
    draw = np.random.default_rng(7)
    pairs = draw.integers(4, size=ROWS)
    arrays["target_sequence_ids"] *= arrays["target_sequence_ids"] <= pairs[:, None]
    arrays["row_weights"][24:32] = 0
    return arrays


def configured(pairs, *changes):
    keys = f"phases.main.batch={ROWS}", "model.layers=1", "optimizer.beta1=0", "optimizer.clip=0"
    return small_config(*keys, *KEYS[pairs], *changes)


def built(shape, count, pairs="nsp", chips=None):
    """Returns the trainer for `count` micro-batches on a mesh of this shape; Adam's first moment is the gradient."""
    config = configured(pairs, *mesh_keys(shape), f"train.micro_batches={count}")
    mesh = meshes.make_mesh(config, chips or jax.devices()[: int(np.prod(shape))])
    return build.build(config, mesh, VOCABULARY)


@cache
def gradient(shape, count, pairs):
    trainer = built(shape, count, pairs)
    arrays = uneven_pairs() if pairs == "translation" else uneven_batch()
    rows = meshes.to_devices(trainer.mesh, arrays, np.arange(ROWS), ROWS)
    state, *_ = trainer.train["main"](trainer.initialize(), rows)
    (moment,) = [part.mu for part in state.opt_state.inner if hasattr(part, "mu")]
    return jax.device_get(moment)


def distance(a, b) -> float:
    """Returns the maximum over leaves of |a - b| / |b|.

    The gradient of key biases is zero but for rounding, because softmax is invariant to them: |b| is taken as at least
    1e-5 of the norm of all leaves.
    """
    least = 1e-5 * np.sqrt(sum(np.vdot(leaf, leaf) for leaf in jax.tree.leaves(b)))

    def leaf(x, y):
        return np.linalg.norm(x - y) / max(np.linalg.norm(y), least)

    return float(max(jax.tree.leaves(jax.tree.map(leaf, a, b))))


@pytest.mark.slow
@pytest.mark.parametrize(
    "shape, count, pairs",
    [
        ((8, 1, 1), 8, "nsp"),
        pytest.param((8, 1, 1), 8, "translation", marks=pytest.mark.full),
        pytest.param((2, 2, 2), 4, "translation", marks=pytest.mark.full),
        pytest.param((2, 2, 2), 4, "nsp", marks=pytest.mark.full),
        pytest.param((1, 1, 1), 4, "nsp", marks=pytest.mark.full),
        pytest.param((8, 1, 1), 1, "nsp", marks=pytest.mark.full),
        pytest.param((8, 1, 1), 2, "sop", marks=pytest.mark.full),
        pytest.param((8, 1, 1), 4, "none", marks=pytest.mark.full),
    ],
)
def test_accumulated_gradients_equal_the_large_batchs(shape, count, pairs):
    """Compared with one large batch on one device."""
    assert distance(gradient(shape, count, pairs), gradient((1, 1, 1), 1, pairs)) < 1e-5


ON_TPU = pytest.param("tpu", marks=[needs_libtpu, pytest.mark.full])


@pytest.mark.slow
@pytest.mark.parametrize("platform", ["cpu", ON_TPU])
def test_gradients_are_summed_over_devices_once_per_step(platform, monkeypatch):
    """Not in every micro-batch, as XLA would by itself, and not twice for the word table."""
    chips = None if platform == "cpu" else devices("v5e:2x4")

    def sent():
        with compiling() if chips else nullcontext():
            trainer = built((8, 1, 1), 4, chips=chips)
        traffic = timeline.sent(timeline.read(trainer.train["main"].as_text(), trainer.mesh))
        assert {kind for kind, _ in traffic} == {"all-reduce"}
        size = sum(leaf.size for leaf in jax.tree.leaves(trainer.shapes.params))
        return sum(traffic.values()) / (2 * 7 / 8 * 4 * size)  # around a ring of eight

    assert sent() == pytest.approx(1, rel=1e-3)
    monkeypatch.setattr(meshes, "summed", lambda mesh, dtype: None)
    assert sent() > 2


@pytest.mark.parametrize(
    "devices, batch, rows, expected",
    [(n, 256, 16, count) for n, count in ((1, 16), (4, 4), (8, 2), (16, 1), (64, 1))]
    # If that does not divide the rows, the largest divisor below it: 30 rows in parts of 6, not 8.
    + [(8, 240, 8, 5), (8, 8 * 7, 4, 7), (8, 256, 0, 1)],
)
def test_micro_batches_follow_from_the_tokens_of_a_chip(devices, batch, rows, expected):
    mesh = SimpleNamespace(shape={"data": devices, "fsdp": 1})
    train = SimpleNamespace(tokens_per_device=100 * rows, micro_batches=1)
    phase = SimpleNamespace(batch=batch, length=100)
    assert meshes.micro_batches(mesh, phase, train) == expected
