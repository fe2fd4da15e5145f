"""The loss and every gradient against those of BERT in Hugging Face transformers (golden/transformers_bert.npz)."""

from pathlib import Path

import jax
import numpy as np
import pytest
from small import VOCABULARY, small_config

from bert_jax import sharding
from bert_jax.objectives import base

NAMES = {
    "bert.embeddings.word_embeddings.weight": "encoder/embedder/words",
    "bert.embeddings.position_embeddings.weight": "encoder/embedder/positions",
    "bert.embeddings.token_type_embeddings.weight": "encoder/embedder/segments",
    "bert.embeddings.LayerNorm": "encoder/embedder_norm",
    "bert.pooler.dense": "encoder/pooler",
    "cls.predictions.transform.dense": "mlm/dense",
    "cls.predictions.transform.LayerNorm": "mlm/norm",
    "cls.predictions.bias": "mlm/bias",
    "cls.seq_relationship": "pair",
}
LAYER = {
    "attention.self.query": "attention/query",
    "attention.self.key": "attention/key",
    "attention.self.value": "attention/value",
    "attention.output.dense": "attention/out",
    "attention.output.LayerNorm": "attention_norm",
    "intermediate.dense": "feed_forward/up",
    "output.dense": "feed_forward/down",
    "output.LayerNorm": "feed_forward_norm",
}
for number in range(2):
    for theirs, ours in LAYER.items():
        NAMES[f"bert.encoder.layer.{number}.{theirs}"] = f"encoder/blocks_{number}/{ours}"


def ours(golden, kind: str) -> dict:
    """{our path: array} of their parameters or gradients; kernels are transposed, vocabularies padded."""
    arrays = {}
    for theirs, array in golden.items():
        name = theirs.removeprefix(f"{kind}/")
        if name == theirs:
            continue
        stem, _, last = name.rpartition(".")
        if name in NAMES:
            path = NAMES[name]
        elif last == "bias":
            path = f"{NAMES[stem]}/bias"
        elif array.ndim == 1:
            path = f"{NAMES[stem]}/scale"
        else:
            path, array = f"{NAMES[stem]}/kernel", array.T
        if path in ("encoder/embedder/words", "mlm/bias"):
            array = np.pad(array, [(0, 128 - len(array))] + [(0, 0)] * (array.ndim - 1))
        arrays[path] = array
    return arrays


def contract(golden) -> dict:
    """Their batch as the batch contract."""
    labels = golden["batch/labels"]
    rows, length = labels.shape
    arrays = {
        "tokens": golden["batch/input_ids"],
        "segments": golden["batch/token_type_ids"],
        "positions": np.broadcast_to(np.arange(length), labels.shape),
        "sequence_ids": golden["batch/attention_mask"],
        "masked_positions": np.broadcast_to(np.arange(length), labels.shape),
        "masked_targets": np.maximum(labels, 0),
        "cls_positions": np.zeros((rows, 1)),
        "pair_labels": golden["batch/next_sentence_label"][:, None],
        "rows": np.arange(rows),
    }
    weights = {"masked_weights": labels >= 0, "pair_weights": np.ones((rows, 1))}
    return {name: array.astype(np.int32) for name, array in arrays.items()} | {
        name: array.astype(np.float32) for name, array in weights.items()
    }


def test_loss_and_gradients_are_those_of_transformers():
    with np.load(Path(__file__).parent / "golden/transformers_bert.npz") as file:
        golden = dict(file)
    config = small_config("model.width=16", "model.positions=16", "phases.main.length=16")
    objective = base.make(config, VOCABULARY._replace(size=40))
    batch = contract(golden)
    shapes = jax.eval_shape(objective.init, jax.random.key(0), batch)
    values, expected = ours(golden, "parameter"), ours(golden, "gradient")
    paths, tree = jax.tree.flatten_with_path(shapes)
    names = [sharding.path_name(path) for path, _ in paths]
    assert set(names) == set(values)
    params = jax.tree.unflatten(tree, [values[name] for name in names])

    def loss(params):
        return objective.loss(params, batch, objective.weights(batch), 0, train=False)[0]

    value, gradients = jax.jit(jax.value_and_grad(loss))(params)
    assert float(value) == pytest.approx(float(golden["loss"]), rel=1e-5)
    for name, gradient in zip(names, jax.tree.leaves(gradients), strict=True):
        scale = np.abs(expected[name]).max()
        # Some gradients, such as those of key biases, are zero but for rounding.
        tolerance = 1e-4 * scale + 1e-6
        np.testing.assert_allclose(gradient, expected[name], atol=tolerance, err_msg=name)
