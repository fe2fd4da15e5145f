"""Classification of tokens and multiple choice: losses, rows cut to several lengths (transformers' logits:
convert/test_to_huggingface.py)."""

import jax
import numpy as np
import pytest
from kits import labelled
from scipy.special import log_softmax

from bert_jax.data import stream


@pytest.fixture(scope="module", params=["ner", "swag"])
def world(request, tmp_path_factory):
    """(config, store, dataset, phase) of rows of many sizes."""
    directory = tmp_path_factory.mktemp("world")
    for name in ("train.txt", "dev.txt"):
        labelled.write_entities(directory / name, 24, seed=0)
    choices = [labelled.make_choices(1, seed, 1 + seed // 6)[0] for seed in range(24)]
    labelled.write_choices(directory, choices, choices)
    keys = labelled.places(labelled.start(directory), directory)
    return labelled.resolve(labelled.load(request.param, keys))


def test_the_loss_is_the_mean_cross_entropy(world):
    """Over labelled pieces, or rows."""
    config, store, dataset, phase = world
    _, batch = labelled.batch_of(dataset, phase)
    objective, params = labelled.random_params(config, store, batch)
    weights = objective.weights(batch)
    loss = jax.jit(objective.loss, static_argnames="train")
    scalar, metrics = loss(params, batch, weights, np.uint32(0), train=False)
    logits = np.asarray(jax.jit(objective.outputs)(params, batch)["label_logits"], np.float64)
    used, targets = batch["label_weights"] > 0, batch["targets"]
    logits = logits if targets.ndim == 2 else logits[..., 0]
    nats = -np.take_along_axis(log_softmax(logits, axis=-1), targets[..., None], -1)[..., 0]
    assert float(scalar) == pytest.approx(nats[used].mean(), rel=1e-5)
    assert weights["label"] == metrics["label_loss"][1] == used.sum()


def test_a_row_has_the_same_logits_in_a_batch_of_any_length(world):
    config, store, dataset, phase = world
    rows, batch = labelled.batch_of(dataset, phase)
    objective, params = labelled.random_params(config, store, batch)
    run = jax.jit(objective.outputs)
    whole = np.asarray(run(params, batch)["label_logits"])
    evaluation = stream.EvaluationBatches(dataset, phase, "train", len(rows), 8)
    lengths, places = set(), evaluation.order.places(np.arange(evaluation.rows), 0)
    for number, part in enumerate(evaluation):
        lengths.add(part["tokens"].shape[1])
        found = np.asarray(run(params, part)["label_logits"])
        expected = whole[places[8 * number :][:8]]
        real = part["sequence_ids"] > 0
        if config.task.name == "token_classification":
            found, expected = found[real], expected[:, : real.shape[1]][real]
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)
    assert len(lengths) > 1 and max(lengths) <= phase.length
