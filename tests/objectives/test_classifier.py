"""The classifier: its loss for each kind of label, and its vectors of texts, beside direct computations in NumPy."""

import jax
import numpy as np
import pytest
from kits import labelled
from kits.small import VOCABULARY, small_batch

from bert_jax.layers import pooling
from bert_jax.models import base as models
from bert_jax.objectives import base

SIZES = {"width": 32, "heads": 4, "layers": 5, "max_length": 32}
KEYS = {f"model.{key}": value for key, value in SIZES.items()} | {"task.labels": "a,b,c"}


def objective(**changes):
    return objective_of(KEYS | changes)


def objective_of(keys: dict):
    return base.make(labelled.load("glue:sst2", keys), VOCABULARY)


def targets(kind: str, rows: int = 16) -> dict:
    draw = np.random.default_rng(1)
    made = {
        "classes": draw.integers(0, 3, rows).astype(np.int32),
        "labels": draw.integers(0, 2, (rows, 3)).astype(np.float32),
        "number": draw.normal(size=rows).astype(np.float32),
    }
    return {"targets": made[kind], "label_weights": draw.integers(0, 2, rows).astype(np.float32)}


def softmax(x):
    odds = np.exp(x - x.max(-1, keepdims=True))
    return odds / odds.sum(-1, keepdims=True)


@pytest.mark.parametrize(
    "kind, smoothing", [("classes", 0), ("classes", 0.1), ("labels", 0), ("number", 0)]
)
def test_losses(kind, smoothing):
    keys = {"task.kind": kind, "objective.label_smoothing": smoothing}
    keys |= {"task.labels": "", "task.metrics": "pearson"} if kind == "number" else {}
    made, batch = objective(**keys), small_batch() | targets(kind)
    params = made.init(jax.random.key(0), batch)
    params["label"]["kernel"] = params["label"]["kernel"] * 50  # far from uniform
    logits = np.asarray(made.outputs(params, batch)["label_logits"], np.float64)[:, 0]
    wanted, weight = batch["targets"], batch["label_weights"]
    if kind == "classes":
        shares = (1 - smoothing) * np.eye(3)[wanted] + smoothing / 3
        losses = -(shares * np.log(softmax(logits))).sum(-1)
    elif kind == "labels":
        p = 1 / (1 + np.exp(-logits))
        losses = -(wanted * np.log(p) + (1 - wanted) * np.log(1 - p)).mean(-1)
    else:
        losses = (logits[:, 0] - wanted) ** 2
    scalar, metrics = made.loss(params, batch, made.weights(batch), 0, train=False)
    assert scalar == pytest.approx((weight * losses).sum() / weight.sum(), rel=1e-5)
    assert metrics["label_loss"][1] == weight.sum()


def test_the_encoder_of_a_transformer_classifies_alone():
    """Its decoder has no parameters then."""
    sizes = {key: value for key, value in KEYS.items() if key != "model.layers"}
    made = objective_of(sizes | {"model.name": "transformer", "model.layers": 2})
    batch = small_batch() | targets("classes")
    params = made.init(jax.random.key(0), batch)
    assert set(params["network"]) == {"encoder"}
    logits = np.asarray(made.outputs(params, batch)["label_logits"])
    assert logits.shape == (16, 1, 3) and np.ptp(logits[:, 0, 0]) > 0


def test_vectors_of_texts():
    """Of two packed sequences in a row, and padding after them."""
    draw = np.random.default_rng(0)
    x = draw.normal(size=(2, 10, 4)).astype(np.float32)
    ids = np.array([[1] * 4 + [2] * 3 + [0] * 3, [1] * 9 + [2]])
    batch = {"sequence_ids": ids, "cls_positions": np.array([[0, 4], [0, 9]])}
    parts = [[x[row][ids[row] == number] for number in (1, 2)] for row in (0, 1)]
    expected = {
        "first": [[part[0] for part in row] for row in parts],
        "mean": [[part.mean(0) for part in row] for row in parts],
        "max": [[part.max(0) for part in row] for row in parts],
    }
    expected["concat"] = np.concatenate(list(map(np.array, expected.values())), axis=-1)
    for name, value in expected.items():
        np.testing.assert_allclose(pooling.reduce(x, batch, name), value, rtol=1e-6)


def test_layers_are_mixed_or_joined():
    """Learned weights of zero are the mean of the layers; a large one chooses its layer (ELMo)."""
    batch = small_batch() | targets("classes")
    config = labelled.load("glue:sst2", KEYS)
    network = models.make(config, VOCABULARY.size)
    made = objective(**{"objective.features": "mix", "objective.pool": "first"})
    params = made.init(jax.random.key(0), batch)
    states = network.apply({"params": params["network"]}, batch, None, method="states")
    assert len(states) == 6 and params["mix"]["weights"].shape == (6,)

    def logits(vectors, kernel):
        return vectors @ np.asarray(kernel)

    kernel, firsts = params["label"]["kernel"], np.stack([state[:, 0] for state in states])
    found = made.outputs(params, batch)["label_logits"][:, 0]
    np.testing.assert_allclose(found, logits(firsts.mean(0), kernel), atol=1e-6)
    params["mix"] = {"weights": 50.0 * np.eye(6, dtype=np.float32)[2], "scale": np.float32(3)}
    found = made.outputs(params, batch)["label_logits"][:, 0]
    np.testing.assert_allclose(found, logits(3 * firsts[2], kernel), atol=1e-5)
    last4 = objective(**{"objective.features": "last4", "objective.pool": "first"})
    params = params | last4.init(jax.random.key(1), batch) | {"network": params["network"]}
    del params["mix"]
    found = last4.outputs(params, batch)["label_logits"][:, 0]
    joined = np.concatenate(firsts[-4:], axis=-1)
    np.testing.assert_allclose(found, logits(joined, params["label"]["kernel"]), atol=1e-6)
